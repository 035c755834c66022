// npm run build: src to dist, or to the folder given; JavaScript and declarations, from nothing.

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

const root = resolve(import.meta.dirname, '..')
const target = resolve(process.argv[2] ?? join(root, 'dist'))

rmSync(target, { recursive: true, force: true })
// Comments are for readers of declarations; in the code they would be an eighth of the package.
const passes = [['--emitDeclarationOnly'], ['--declaration', 'false', '--removeComments']]
const isBuilt = passes.every(compile)
if (isBuilt) nameWhatWasBuilt()
process.exitCode = isBuilt ? 0 : 1

function compile(options) {
  const result = spawnSync('tsc', ['-p', 'tsconfig.build.json', '--outDir', target, ...options], { cwd: root, stdio: 'inherit' })
  if (result.error) throw result.error
  return result.status === 0
}

/**
 * tsc turns './run.ts' into './run.js' in code, and leaves it in declarations (microsoft/TypeScript#61037, no option).
 * The length stays, so their maps stay true.
 */
function nameWhatWasBuilt() {
  for (const file of readdirSync(target, { recursive: true })) {
    if (!file.endsWith('.d.ts')) continue
    const path = join(target, file)
    writeFileSync(
      path,
      readFileSync(path, 'utf8').replace(/(\bfrom |\bimport[ (])(['"])(\.{1,2}\/[^'"\n]*)\.ts\2/g, '$1$2$3.js$2'),
    )
  }
}
