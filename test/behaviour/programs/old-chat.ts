// The older program: a chat whose state has version 1. Argument: URL. Says one thing on the thread `alice`, and starts a
// run on the thread `bob` that is still under way when this program ends.
import { open, state, workflow } from 'holdfast'

const chat = workflow(
  { name: 'chat', state: state({ version: 1, initial: () => ({ messages: [] as string[] }) }) },
  async (ctx, text: string) => {
    ctx.update((draft) => {
      draft.messages.push(text)
    })
    if (text === 'wait') await ctx.sleep(3_600_000)
    return ctx.step('count', () => ctx.state.messages.length)
  },
)

const hf = await open(process.argv[2] as string, { workflows: [chat] })
await hf.thread('alice').run(chat, 'hello')
const run = await hf.thread('bob').start(chat, 'wait', { id: 'bobs-run' })
while ((await run.info()).status !== 'waiting') await new Promise((resolve) => setTimeout(resolve, 5))
await hf.close()
