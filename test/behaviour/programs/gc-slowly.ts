import { open } from 'holdfast'
import { report } from './report.ts'

// Deletes what is older than a day, by a clock that is so many ms ahead, until it is done or killed.
const [, , url, aheadMs] = process.argv
const maxAgeMs = 24 * 3_600_000
const retention = { runs: { maxAgeMs }, threads: { maxAgeMs }, streams: { maxAgeMs: 0 } }
const hf = await open(url, { worker: false, clock: Number(aheadMs), retention })
report('begun')
await hf.gc()
report('done')
await hf.close()
