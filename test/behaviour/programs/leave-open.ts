// Opens a store without a worker, starts a run, looks at it, and comes to its end without closing anything. Arguments: URL.
import { open } from 'holdfast'
import { report } from './report.ts'

const hf = await open(process.argv[2] as string, { worker: false })
const run = await hf.start('somewhere-else', undefined, { id: 'r' })
const error = await run.result({ timeoutMs: 700 }).catch((thrown: { code?: unknown }) => thrown.code)
report('waited', error)
