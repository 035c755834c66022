// npm run setup: installs the programs that tests call, as root on Debian; elsewhere it says which are missing.

import { spawnSync } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Program, the Debian package that has it, what it is for. */
const programs = [
  { command: 'strace', debianPackage: 'strace', purpose: 'counting the fsyncs of a commit' },
  { command: 'redis-server', debianPackage: 'redis-server', purpose: 'the tests of the Redis store' },
  { command: 'chromium', debianPackage: 'chromium', purpose: 'the test of the page of examples/agent' },
  { command: 'pgbouncer', debianPackage: 'pgbouncer', purpose: 'the tests of the Postgres store behind a pooler' },
]

/** Installs what is missing, or throws an error that names it. */
export function ensureSystemPackages() {
  const missing = missingPrograms()
  if (missing.length > 0 && process.getuid?.() === 0 && isOnPath('apt-get')) installWithApt(packagesOf(missing))
  const stillMissing = describeMissing()
  if (stillMissing !== undefined) throw new Error(stillMissing)
}

/** What is missing and how to install it, or undefined. */
export function describeMissing() {
  const missing = missingPrograms()
  if (missing.length === 0) return undefined
  const width = Math.max(...missing.map(({ command }) => command.length))
  const list = missing.map(({ command, purpose }) => `  ${command.padEnd(width)}  for ${purpose}`)
  const remedy = isOnPath('apt-get')
    ? `Install them with: sudo apt-get install --no-install-recommends ${packagesOf(missing).join(' ')}`
    : 'Install them, then try again.'
  return `Some tests need programs that are not on this machine:\n${list.join('\n')}\n${remedy}`
}

function packagesOf(missing) {
  return missing.map(({ debianPackage }) => debianPackage)
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
    console.log('Every program that the tests call is installed.')
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  }
}
