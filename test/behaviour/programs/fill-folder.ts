// Saves artifacts in a folder on a small disk until it is full, from outside and in a step, and again when there is room. Arguments: URL, a folder on the disk.

import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { open, workflow } from 'holdfast'
import { report } from './report.ts'

const [url = '', folder = ''] = process.argv.slice(2)
const ballast = join(folder, 'ballast')
const content = Buffer.alloc(3_000_000, 'holdfast')
let bodies = 0

const save = workflow('save', (ctx) =>
  ctx.step(
    'save',
    ({ artifacts }) => {
      if (++bodies === 2) rmSync(ballast)
      return artifacts.save({ name: 'in a step', type: 'generated_file', content })
    },
    { retry: { attempts: 5, minMs: 1, maxMs: 2 } },
  ),
)

const hf = await open(url, { workflows: [save], artifacts: `file:${join(folder, 'kept')}`, logger: false })
writeFileSync(ballast, Buffer.alloc(10_000_000))
const code = await hf.artifacts.save({ name: 'outside', type: 'generated_file', content }).then(
  () => 'saved',
  (error: { code?: string }) => error.code,
)
const files = existsSync(join(folder, 'kept'))
  ? readdirSync(join(folder, 'kept'), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  : []
report('refused', { code, files: files.length, listed: (await hf.artifacts.list()).items.length })
const { id } = await hf.run(save, undefined, { id: 'r' })
const read = await (await hf.artifacts.open(id)).bytes()
report('saved', { length: read.length, bodies })
await hf.close()
