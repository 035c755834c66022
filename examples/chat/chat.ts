// A conversation with a memory: node chat.ts URL THREAD MESSAGE answers one message and then stays, as a server would.

import { open } from 'holdfast'
import { chat } from './conversation.ts'

const [url, thread = 'alice', text = 'Hello'] = process.argv.slice(2)
const hf = await open(url, { workflows: [chat] })
console.log(await hf.thread(thread).run(chat, text))
