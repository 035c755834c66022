// One turn of the conversation: node turn.ts URL THREAD CUSTOMER MESSAGE answers one message and then stays, as a server would.

import { open } from 'holdfast'
import { agent } from './agent.ts'

const [url, thread = 'alice-1', customer = 'alice', text = 'Hello'] = process.argv.slice(2)
const hf = await open(url, { workflows: [agent] })
console.log(await hf.thread(thread).run(agent, { customer, text }))
