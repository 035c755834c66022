// Saves artifacts in a run, or collects what nothing refers to: node program.mjs save|collect FILE. Killed at any of its system calls.

import { open, workflow } from 'holdfast'
import { collectArtifacts } from '../../src/artifacts/collect-artifacts.ts'
import { artifactPartsOf } from '../artifact-parts.ts'

const [what, file = ''] = process.argv.slice(2)
const large = Buffer.alloc(700_000, 'holdfast ')

const saves = workflow('saves', async (ctx) => {
  await ctx.step('two', async ({ artifacts }) => {
    await artifacts.save({ name: 'large', type: 'generated_file', content: large })
    await artifacts.save({ name: 'small', type: 'generated_file', content: 'small' })
  })
  await ctx.step(
    'flaky',
    async ({ artifacts, attempt }) => {
      await artifacts.save({ name: 'flaky', type: 'generated_file', content: `attempt ${attempt}` })
      if (attempt === 1) throw new Error('not yet')
    },
    { retry: { minMs: 1, maxMs: 2 } },
  )
  await Promise.all(
    ['x', 'y', 'x'].map((content, index) =>
      ctx.step(`at once ${index}`, ({ artifacts }) => artifacts.save({ name: 'at once', type: 'data_export', content })),
    ),
  )
  await ctx.artifacts.save({ name: 'kept inside', type: 'analysis_result', content: large })
  await ctx.artifacts.delete({ name: 'small' })
})

if (what === 'save') {
  const hf = await open(`sqlite:${file}`, { workflows: [saves], worker: { quietMs: 20 } })
  await hf.run(saves, undefined, { id: 'saves' })
  await hf.close()
} else {
  const { parts, close } = await artifactPartsOf(file)
  await collectArtifacts(parts, { graceMs: 0 })
  await close()
}
