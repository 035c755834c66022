// A worker on a store that an old version wrote. Arguments: URL, folder of the journal and the clock.
import { openWorker } from '../../old-stores/open-worker.ts'
import { report } from './report.ts'

const [url, folder] = process.argv.slice(2) as [string, string]
const hf = await openWorker(url, folder)
report('opened')
process.once('SIGTERM', () => void hf.close())
