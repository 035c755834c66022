// A worker: executes runs of `where` until it is killed or told to close (SIGTERM). Arguments: URL, concurrency,
// and how long its leases last, in ms.
import { open, workflow } from 'holdfast'
import { report } from './report.ts'

const [url, concurrency, leaseMs = '10000'] = process.argv.slice(2) as [string, string, string?]
const where = workflow('where', (ctx) =>
  ctx.step('work', async () => {
    report('executed', ctx.runId)
    await new Promise((resolve) => setTimeout(resolve, 10))
    return process.pid
  }),
)
const hf = await open(url, { workflows: [where], worker: { concurrency: Number(concurrency), leaseMs: Number(leaseMs) } })
process.once('SIGTERM', () => void hf.close())
report('ready')
