// Artifacts in a folder: how much memory a large one takes while it is saved and read, and what small ones cost beside a plain step.
//
//   npm run bench -- artifacts [MEGABYTES]

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Holdfast, open, workflow } from 'holdfast'

const megabytes = Number(process.argv[2] ?? 1_024)
const stepCount = 200
const rounds = 5

const plain = workflow('plain', async (ctx) => {
  for (let i = 0; i < stepCount; i++) await ctx.step('work', () => i)
})
const saving = workflow('saving', async (ctx) => {
  for (let i = 0; i < stepCount; i++)
    await ctx.step('work', ({ artifacts }) => artifacts.save({ name: 'n', type: 'generated_file', content: `${ctx.runId} ${i}` }))
})

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-artifacts-'))
const hf = await open(`sqlite:${join(folder, 'holdfast.db')}`, { workflows: [plain, saving] })
await large(hf)
await small(hf)
await hf.close()
rmSync(folder, { recursive: true, force: true })

async function large(hf: Holdfast): Promise<void> {
  async function* content() {
    for (let i = 0; i < megabytes; i++) yield Buffer.alloc(1024 * 1024, `${i} `)
  }
  const saved = await measured(`${megabytes} MiB saved`, () =>
    hf.artifacts.save({ name: 'large', type: 'generated_file', content }),
  )
  await measured(`${megabytes} MiB read`, async () => {
    for await (const part of await hf.artifacts.open(saved.id)) void part
  })
}

async function measured<T>(what: string, act: () => Promise<T>): Promise<T> {
  const before = process.memoryUsage.rss()
  let most = before
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss())
  }, 10)
  const startedAt = performance.now()
  const result = await act()
  clearInterval(timer)
  const seconds = (performance.now() - startedAt) / 1_000
  const [mebibytes, base] = [most, before].map((bytes) => Math.round(bytes / 1024 / 1024))
  console.log(
    `${what.padEnd(20)} ${seconds.toFixed(1)} s, ${Math.round(megabytes / seconds)} MiB/s, at most ${mebibytes} MiB of memory (${base} before)`,
  )
  return result
}

/** One after the other in each round, so that a busy machine slows both. */
async function small(hf: Holdfast): Promise<void> {
  const times = { plain: [] as number[], saving: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    for (const [name, work] of Object.entries({ plain, saving }) as ['plain' | 'saving', typeof plain][]) {
      const startedAt = performance.now()
      await hf.run(work)
      times[name].push((performance.now() - startedAt) / stepCount)
    }
  }
  for (const [name, list] of Object.entries(times)) {
    const sorted = list.toSorted((a, b) => a - b)
    const [least, middle, most] = [0, Math.floor(rounds / 2), rounds - 1].map((index) => (sorted[index] ?? 0).toFixed(2))
    console.log(`${`a step, ${name}`.padEnd(20)} ${middle} ms (${least} to ${most})`)
  }
}
