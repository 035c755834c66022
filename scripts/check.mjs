// npm run check: what must hold before publishing. Types, lint, unused code, build, then publint and attw on the packed package.

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-check-'))
try {
  run('tsc')
  run('biome', 'check')
  run('knip')
  run('node', 'scripts/build.mjs')
  // `npm publish --dry-run` starts this with a setting that would make it pack nothing.
  run('npm', 'pack', '--dry-run=false', '--loglevel=error', '--pack-destination', folder)
  const tarball = join(folder, readdirSync(folder)[0])
  run('publint', 'run', '--strict', tarball)
  run('attw', '--profile', 'esm-only', tarball)
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function run(command, ...args) {
  const result = spawnSync(command, args, { stdio: 'inherit' })
  if (result.error) throw result.error
  if (result.status !== 0) throw new Error(`${command} ${args.join(' ')} failed.`)
}
