// npm test: types, lint, unused code, then every test (test/package packs and installs the package). Arguments go to vitest.
// All of it runs even after a failure. The last line, `N passed, N failed`, counts each test, and each of the three before them as one.
//
// npm run test:fast (--fast): the tests that need no server and no other program, on memory and SQLite; no types, no lint.

import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { freemem, tmpdir } from 'node:os'
import { join } from 'node:path'
import { ensureSystemPackages } from './system-packages.mjs'

/** Linux has a file system in memory here. */
const memory = '/dev/shm'

/** What the quick loop runs: pure rules, the store suite and behaviour. */
const fastFiles = [
  'src/',
  'test/behaviour/',
  'test/stores/memory.test.ts',
  'test/stores/sqlite.test.ts',
  'test/architecture.test.ts',
]
const neverFast = ['test/behaviour/connections-of-your-own.test.ts']

const startedAt = performance.now()
const times = []
const counts = { passed: 0, failed: 0, skipped: 0 }

const args = process.argv.slice(2).filter((arg) => arg !== '--fast')
const isFast = process.argv.includes('--fast')
const env = { ...process.env }

try {
  if (isFast) {
    env.STORES ??= 'memory,sqlite'
    // Names of files come before options.
    const hasNames = args.length > 0 && !args[0].startsWith('-')
    runTests([...(hasNames ? [] : fastFiles), ...args, ...neverFast.flatMap((file) => ['--exclude', file])])
  } else {
    ensureSystemPackages()
    check('types', 'tsc', [])
    check('lint', 'biome', ['check'])
    check('unused', 'knip', [])
    runTests(args)
  }
} catch (error) {
  console.error(error.message)
  counts.failed += 1
}
console.log(
  `\n${isFast ? 'npm run test:fast' : 'npm test'} took ${seconds(startedAt)} (${times.join(', ')})${counts.skipped > 0 ? `; ${counts.skipped} skipped` : ''}`,
)
console.log(`${counts.passed} passed, ${counts.failed} failed`)
process.exitCode = counts.failed === 0 ? 0 : 1

function check(name, command, commandArgs) {
  counts[run(name, command, commandArgs) ? 'passed' : 'failed'] += 1
}

function runTests(vitestArgs) {
  const folder = makeFolder()
  try {
    const file = join(folder, 'results.json')
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
    const isGreen = run('tests', 'vitest', ['run', ...reporters, ...vitestArgs], { ...env, TMPDIR: folder })
    const failedBefore = counts.failed
    countTests(JSON.parse(readFileSync(file, 'utf8')))
    // An error outside of every test, such as an unhandled rejection, fails the run and no test.
    if (!isGreen && counts.failed === failedBefore) counts.failed += 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Where servers and tests have their files: in memory where there is room, so that nobody waits for a disk that others keep busy.
 * Processes and servers are killed here, never the machine, and a kill takes nothing from either. Torture and benchmarks use the disk.
 */
function makeFolder() {
  const folder = mkdtempSync(join(hasRoom(memory) ? memory : tmpdir(), 'holdfast-test-'))
  // Postgres runs as another user where this is root.
  chmodSync(folder, 0o755)
  return folder
}

function hasRoom(parent) {
  try {
    const { bavail, bsize } = statfsSync(parent)
    return Math.min(bavail * bsize, freemem()) > 8 * 2 ** 30 && canExecute(parent)
  } catch {
    return false
  }
}

/** Some systems run nothing from there; the tests install a package in their folder. */
function canExecute(parent) {
  const folder = mkdtempSync(join(parent, 'holdfast-test-'))
  try {
    writeFileSync(join(folder, 'program'), '#!/bin/sh\n', { mode: 0o755 })
    return spawnSync(join(folder, 'program')).status === 0
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function countTests(results) {
  counts.passed += results.numPassedTests
  counts.failed += results.numFailedTests
  counts.skipped += results.numPendingTests + results.numTodoTests
  // A file that could not be loaded has failed without a test to say so.
  const hasFailedTest = (file) => file.assertionResults.some((test) => test.status === 'failed')
  counts.failed += results.testResults.filter((file) => file.status === 'failed' && !hasFailedTest(file)).length
}

function run(name, command, commandArgs, commandEnv = env) {
  const stepStartedAt = performance.now()
  const result = spawnSync(command, commandArgs, { stdio: 'inherit', env: commandEnv })
  if (result.error) throw result.error
  times.push(`${name} ${seconds(stepStartedAt)}`)
  return result.status === 0
}

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`
}
