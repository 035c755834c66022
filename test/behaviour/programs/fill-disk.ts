// Writes until the disk under the store is full, then makes room. Arguments: URL, a file that takes room until it is removed.
import { randomBytes } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { type HoldfastError, open, workflow } from 'holdfast'
import { report } from './report.ts'

const [url, ballast] = process.argv.slice(2) as [string, string]
writeFileSync(ballast, randomBytes(11_000_000))
const bodies: number[] = []
const writer = workflow('writer', async (ctx, kilobytes: number) => {
  let sum = 0
  for (let i = 0; i < kilobytes / 20; i++) {
    const text = await ctx.step('write', () => {
      bodies.push(i)
      return randomBytes(15_000).toString('base64')
    })
    sum += text.length
  }
  return sum
})
const hf = await open(url, { workflows: [writer] })
const before = await hf.run(writer, 100, { id: 'before' })
// More than there is room for: it waits for space in the middle.
const run = await hf.start(writer, 2_000, { id: 'big' })
let refused: HoldfastError | undefined
for (let i = 0; refused === undefined; i++) {
  await hf.start(writer, 0, { id: `small-${i}` }).catch((error: HoldfastError) => {
    refused = error
  })
  await new Promise((resolve) => setTimeout(resolve, 5))
}
report('refused', { code: refused.code, message: refused.message })
report('readable', {
  before: (await (await hf.runs.get('before')).result()) === before,
  status: (await run.info()).status,
})
rmSync(ballast)
report('finished', { length: await run.result(), bodies: bodies.length, distinct: new Set(bodies).size })
report('next', await hf.run(writer, 20, { id: 'after' }))
await hf.close()
