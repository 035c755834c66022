// Writes half an answer to the stream `tokens` and hangs in the middle of the step. Argument: URL.
import { open, workflow } from 'holdfast'
import { forEver, report } from './report.ts'

const answer = workflow('answer', (ctx) =>
  ctx.step('write', async (step) => {
    const tokens = step.stream('tokens')
    for (const word of ['half', 'an']) await tokens.write(word)
    report('written')
    return forEver()
  }),
)
const hf = await open(process.argv[2] as string, { workflows: [answer] })
await hf.start(answer, undefined, { id: 'answer' })
