// A process that executes reports until the one it was asked for has ended: node worker.ts URL RUN_ID

import { open } from 'holdfast'
import { report } from './report.ts'

const [url, runId = ''] = process.argv.slice(2)
const hf = await open(url, { workflows: [report] })
const run = await hf.runs.get(runId)
await run.result()
await hf.close()
