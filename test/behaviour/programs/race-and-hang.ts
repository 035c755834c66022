// Runs two steps at a time and hangs in the last one. Arguments: URL, file for the marks of the bodies, which step is first.
import { open } from 'holdfast'
import { makeRacer } from './racer.ts'
import { forEver, report } from './report.ts'

const [url, file, first] = process.argv.slice(2) as [string, string, 'a' | 'b']
const racer = makeRacer(file, () => {
  report('at the end')
  return forEver()
})
const hf = await open(url, { workflows: [racer] })
await hf.start(racer, { first }, { id: 'race' })
