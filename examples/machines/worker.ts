// One machine of many: node worker.ts URL. It executes newsletters until it is told to stop.

import { open } from 'holdfast'
import { newsletter } from './newsletter.ts'

const [url] = process.argv.slice(2)
// A short lease, so that the example does not have to wait. The default is 10 s.
const hf = await open(url, {
  workflows: [newsletter],
  worker: { concurrency: 8, leaseMs: 2_000 },
  pool: { min: 1, max: 4 },
})
process.once('SIGTERM', () => void hf.close())
console.log('ready')
