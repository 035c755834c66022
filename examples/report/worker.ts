// A process that executes reports until the one it was asked for has ended: node worker.ts URL RUN_ID

import { open } from 'holdfast'
import { report } from './report.ts'

const [url, runId = ''] = process.argv.slice(2)
// Without /proc, a dead process is noticed when its lease expires: a short lease, so that the demo does not have to wait.
const leaseMs = process.platform === 'linux' ? 10_000 : 2_000
const hf = await open(url, { workflows: [report], worker: { leaseMs } })
const run = await hf.runs.get(runId)
await run.result()
await hf.close()
