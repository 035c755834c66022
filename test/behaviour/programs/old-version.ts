// A process of an earlier version of Holdfast, in the middle of a run. Arguments: file of that version, URL, folder, lease in ms.
// When the folder has a file `go` its step ends, and it tries everything that writes.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { makeCounting } from '../../upgrade/counting.ts'
import { report } from './report.ts'

const [file, url, folder, leaseMs] = process.argv.slice(2) as [string, string, string, string]
const { open, workflow } = (await import(pathToFileURL(file).href)) as typeof import('holdfast')

const hasWord = async () => {
  report('waits')
  while (!existsSync(join(folder, 'go'))) await new Promise((resolve) => setTimeout(resolve, 20))
  report('goes on')
}
const counting = makeCounting({ workflow, folder, who: 'old', second: hasWord })
const hf = await open(url, { workflows: [counting], worker: { leaseMs: Number(leaseMs), pollMs: 50 } })
const run = await hf.start('counting', undefined, { id: 'under-way' })
await hf.start('counting', undefined, { id: 'in-line', threadId: 'under-way' })
while (!existsSync(join(folder, 'go'))) await new Promise((resolve) => setTimeout(resolve, 20))

const writes: Record<string, () => Promise<unknown>> = {
  start: () => hf.start('counting', undefined, { id: 'late' }),
  signal: () => hf.signal('under-way', 'late'),
  edit: () => hf.thread('edited').update((draft: { late?: boolean }) => void Object.assign(draft, { late: true })),
  queue: () => hf.queues.set('late', { concurrency: 1 }),
  delete: () => hf.thread('under-way').delete(),
  cancel: () => run.cancel(),
}
const answers = Object.entries(writes).map(async ([name, write]) => {
  const answer = await write().then(
    () => 'written',
    () => 'refused',
  )
  return [name, answer] as const
})
report('tried', Object.fromEntries(await Promise.all(answers)))
setInterval(() => {}, 1_000)
