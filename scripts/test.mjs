// npm test: types, lint, unused code, then every test (test/package packs and installs the package). Arguments go to vitest.
// All of it runs even after a failure. The last line, `N passed, N failed`, counts each test, and each of the three before them as one.
//
// npm test -- NAME…: only the test files with a NAME in their path, on every store; no types, no lint.
// npm run test:fast (--fast): the tests that need no server and no other program, on memory and SQLite; no types, no lint.
// npm run watch (--watch): what test:fast runs, and after each change of a file the tests that it concerns.

import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { freemem, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describeMissing, ensureSystemPackages } from './system-packages.mjs'

/** Linux has a file system in memory here. */
const memory = '/dev/shm'

/** What the quick loop runs: pure rules, the store suite and behaviour. */
const fastFiles = [
  'src/',
  'test/behaviour/',
  'test/stores/memory.test.ts',
  'test/stores/sqlite.test.ts',
  'test/architecture.test.ts',
  'test/shape.test.ts',
]
const neverFast = ['test/behaviour/connections-of-your-own.test.ts']

const startedAt = performance.now()
const times = []
const counts = { passed: 0, failed: 0, skipped: 0 }

const flags = ['--fast', '--watch']
const isWatching = process.argv.includes('--watch')
const isFast = isWatching || process.argv.includes('--fast')
const args = process.argv.slice(2).filter((arg) => !flags.includes(arg))
// Names of files come before options.
const hasNames = args.length > 0 && !args[0].startsWith('-')
const env = { ...process.env }

// Ctrl-C ends vitest; this process then removes its folder.
process.on('SIGINT', () => {})
if (isWatching) watchTests()
else runAndCount()

function watchTests() {
  const folder = makeFolder()
  try {
    spawnSync('vitest', ['watch', ...fastArgs()], { stdio: 'inherit', env: { ...env, TMPDIR: folder } })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function runAndCount() {
  try {
    if (isFast) runTests(fastArgs())
    else if (hasNames) runNamedTests()
    else runEverything()
  } catch (error) {
    console.error(error.message)
    counts.failed += 1
  }
  console.log(
    `\n${isFast ? 'npm run test:fast' : 'npm test'} took ${seconds(startedAt)} (${times.join(', ')})${counts.skipped > 0 ? `; ${counts.skipped} skipped` : ''}`,
  )
  console.log(`${counts.passed} passed, ${counts.failed} failed`)
  process.exitCode = counts.failed === 0 ? 0 : 1
}

function runEverything() {
  ensureSystemPackages()
  check('types', 'tsc', [])
  check('lint', 'biome', ['check'])
  check('unused', 'knip', [])
  runTests(args)
}

/** Most files need no other program, so that a missing one is no reason to stop. */
function runNamedTests() {
  const missing = describeMissing()
  if (missing !== undefined) console.error(`${missing}\n`)
  runTests(args)
}

function fastArgs() {
  env.STORES ??= 'memory,sqlite'
  return [...(hasNames ? [] : fastFiles), ...args, ...neverFast.flatMap((file) => ['--exclude', file])]
}

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
 * Where servers and tests have their files: in memory where there is room, because a busy disk makes tests with many commits ten times slower.
 * Processes and servers are killed here, never the machine, and a kill loses nothing in either place. Torture and benchmarks use the disk.
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
