// A process with many runs: `leave URL` starts them and is killed when each has recorded its steps and is in the middle of the next;
// `take-up URL` is the process that comes after it, and says how it went.

import { open, workflow } from 'holdfast'
import { openTarget } from '../../src/open.ts'
import type { Change } from '../../src/store/change.ts'
import { wrapStore } from '../../src/testing/faulty-store.ts'
import { type Recovery, runCount, stepCount } from './recovery.ts'

const [act, url] = process.argv.slice(2) as ['leave' | 'take-up', string]
const bodies = { recorded: 0, interrupted: 0 }

const report = workflow('report', async (ctx) => {
  let sum = 0
  for (let n = 1; n <= stepCount; n++) {
    sum += await ctx.step(`step ${n}`, () => {
      bodies.recorded++
      return n
    })
  }
  return await ctx.step('interrupted', () => {
    bodies.interrupted++
    if (act === 'take-up') return sum
    if (bodies.interrupted === runCount) setTimeout(die, 500)
    return new Promise<number>(() => {})
  })
})

if (act === 'leave') await leave()
else await takeUp()

async function leave(): Promise<void> {
  const hf = await open(url, { logger: false, workflows: [report], worker: { concurrency: runCount, leaseMs: 4_000 } })
  await hf.startMany(Array.from({ length: runCount }, (_, index) => ({ workflow: report, options: { id: `run-${index}` } })))
}

/** Half a second later: what rides is on the disk by then, the beginning of the step that is interrupted too. */
function die(): void {
  process.kill(process.pid, 'SIGKILL')
}

async function takeUp(): Promise<void> {
  const loadedMs = performance.now()
  const loading = process.cpuUsage()
  const { store, close } = await openTarget(url, { durability: 'full', clockOffsetMs: () => 0 })
  const acts: Record<string, number> = {}
  let completed = 0
  let tell = () => {}
  const over = new Promise<void>((resolve) => {
    tell = resolve
  })
  const counting = wrapStore(store, {
    before: (name) => {
      acts[name] = (acts[name] ?? 0) + 1
    },
    after: (name, _nth, args) => {
      if (name !== 'commit') return
      for (const { events } of args[0] as readonly Change[])
        completed += events.filter(({ type }) => type === 'run_completed').length
      if (completed >= runCount) tell()
    },
  })
  const openedMs = performance.now()
  const hf = await open(counting, { logger: false, workflows: [report] })
  await over
  const endedAt = performance.timeOrigin + performance.now()
  const { user, system } = process.cpuUsage()
  const found: Recovery = {
    endedAt,
    loadedMs,
    openedMs,
    cpuMs: (user + system) / 1_000,
    loadingCpuMs: (loading.user + loading.system) / 1_000,
    acts: { ...acts },
    bodies,
  }
  await hf.close()
  await close()
  console.log(JSON.stringify(found))
}
