// A parent that awaits N children of a queue with a limit: time, processor time and reads of rows, for N and twice N and so on
//
// Options: --children=N,N,… (default 500,1000,2000,4000).

import { type Holdfast, open, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { createMemoryStore } from '../src/stores/memory/memory-store.ts'
import { printLoad, printMachine } from './measuring/machine.ts'

const counts = (process.argv.find((arg) => arg.startsWith('--children='))?.slice('--children='.length) ?? '500,1000,2000,4000')
  .split(',')
  .map(Number)
const child = workflow({ name: 'child', queue: 'items' }, (ctx, n: number) => ctx.step('s', () => n))
const parent = workflow('parent', async (ctx, count: number) => {
  const results = await Promise.all(Array.from({ length: count }, (_, n) => ctx.call(child, n)))
  return results.length
})

printMachine('.')
console.log('settings  memory store, 20 children at a time; reads are calls of the store')
for (const count of counts) {
  const reads = new Map<string, number>()
  const store = wrapStore(createMemoryStore(), {
    before: (act) => void reads.set(act, (reads.get(act) ?? 0) + 1),
  })
  const hf: Holdfast = await open(store, { workflows: [parent, child] })
  await hf.queues.set('items', { concurrency: 20 })
  const cpu = process.cpuUsage()
  const startedAt = performance.now()
  await hf.run(parent, count)
  const tookMs = performance.now() - startedAt
  const { user, system } = process.cpuUsage(cpu)
  const shown = ['readRun', 'readInbox', 'readLog']
    .map((act) => `${act} ${reads.get(act) ?? 0} (${((reads.get(act) ?? 0) / count).toFixed(2)} a child)`)
    .join(', ')
  console.log(
    `  ${String(count).padStart(5)} children  ${tookMs.toFixed(0)} ms, processor ${((user + system) / count).toFixed(0)} µs a child; ${shown}`,
  )
  await hf.close()
}
printLoad('end')
