// Makes sure that the programs which tests call are installed: on Debian as root it installs them, elsewhere it says which are missing.

import { spawnSync } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Program, the Debian package that has it, what it is for. */
const programs = [
  { command: 'strace', debianPackage: 'strace', purpose: 'counting the fsyncs of a commit' },
  { command: 'redis-server', debianPackage: 'redis-server', purpose: 'the tests of the Redis store' },
  { command: 'pgbouncer', debianPackage: 'pgbouncer', purpose: 'the tests of the Postgres store behind a pooler' },
]

/** Installs what is missing, or throws an error that names it. */
export function ensureSystemPackages() {
  const missing = missingPrograms()
  if (missing.length === 0) return
  if (process.getuid?.() === 0 && isOnPath('apt-get')) installWithApt(missing.map((program) => program.debianPackage))
  const stillMissing = missingPrograms()
  if (stillMissing.length === 0) return
  const list = stillMissing.map(
    (program) => `${program.command} (Debian package ${program.debianPackage}), for ${program.purpose}`,
  )
  throw new Error(`The tests need programs that are not on this machine:\n  ${list.join('\n  ')}\nInstall them, then try again.`)
}

function missingPrograms() {
  return programs.filter((program) => !isOnPath(program.command))
}

function installWithApt(debianPackages) {
  console.error(`Installing ${debianPackages.join(', ')} (apt-get) …`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const aptGet = (...args) => spawnSync('apt-get', ['-qq', ...args], { stdio: ['ignore', 2, 2], env }).status === 0
  // The lists of a fresh machine are empty or old; but an update that fails may still leave usable ones.
  aptGet('update')
  aptGet('install', '-y', '--no-install-recommends', ...debianPackages)
}

function isOnPath(command) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  try {
    ensureSystemPackages()
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  }
}
