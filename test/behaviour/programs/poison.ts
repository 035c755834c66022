// A worker that is brought down by what it executes. Arguments: URL, where it dies: `function`, `step` or `nowhere`.
import { open } from 'holdfast'
import { patience } from '../../patience.ts'
import { makePoison } from './poisonous.ts'
import { report } from './report.ts'

const [url, place] = process.argv.slice(2) as [string, string]
const hf = await open(url, {
  workflows: [makePoison(place, () => process.kill(process.pid, 'SIGKILL'))],
  worker: { leaseMs: patience(500) },
})
const run = await hf.start('poison', null, { id: 'poison' })
await hf.start('poison', 'harmless', { id: 'harmless' })
for (;;) {
  const { status } = await run.info()
  if (status !== 'pending' && status !== 'running') break
  await new Promise((resolve) => setTimeout(resolve, 5))
}
report('survived')
await hf.close()
