// Says something on the thread `alice`, then begins a second turn and hangs in its step. Argument: URL.
import { open } from 'holdfast'
import { makeChat } from './chat.ts'
import { forEver, report } from './report.ts'

const chat = makeChat((said) => {
  if (!said.includes('second')) return `you said ${said}`
  report('in the second turn')
  return forEver()
})
const hf = await open(process.argv[2] as string, { workflows: [chat] })
await hf.thread('alice').run(chat, { say: 'my name is Alice' })
await hf.thread('alice').start(chat, { say: 'second' }, { id: 'second-turn' })
