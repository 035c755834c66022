// Makes `old-holdfast.mjs.gz`: the library as it was at commit 09549e1, in one file, so that tests can run it beside this version
// without the history of the repository. From its root:
//
//   git worktree add --detach ../holdfast-09549e1 09549e1
//   (cd ../holdfast-09549e1 && npm ci)
//   node test/upgrade/bundle.ts ../holdfast-09549e1
//   git worktree remove --force ../holdfast-09549e1
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build } from 'vite'

const root = resolve(process.argv[2] ?? '')
const commit = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' }).trim()
const changed = execFileSync('git', ['status', '--porcelain', '--', 'src'], { cwd: root, encoding: 'utf8' }).trim()
if (!commit.startsWith('09549e1') || changed !== '') throw new Error(`${root} is not commit 09549e1: see the top of bundle.ts.`)

const folder = mkdtempSync(join(tmpdir(), 'holdfast-old-'))
await build({
  root,
  configFile: false,
  logLevel: 'warn',
  ssr: { noExternal: true, external: ['better-sqlite3', 'pg', 'redis', 'ioredis'] },
  build: {
    ssr: join(root, 'src/index.ts'),
    outDir: folder,
    target: 'node22',
    minify: true,
    rolldownOptions: { output: { entryFileNames: 'old-holdfast.mjs', codeSplitting: false } },
  },
})
const made = gzipSync(readFileSync(join(folder, 'old-holdfast.mjs')), { level: 9 })
writeFileSync(new URL('./old-holdfast.mjs.gz', import.meta.url), made)
rmSync(folder, { recursive: true })
