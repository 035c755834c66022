import { spawn } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { patience } from '../patience.ts'
import type { Mutant } from './mutants.ts'

const root = join(import.meta.dirname, '../..')
const limitMs = patience(150_000)

export type Verdict =
  | { readonly kind: 'caught'; readonly by: readonly string[]; readonly because: string }
  /** The suite does not see the fault. */
  | { readonly kind: 'survived' }
  /** The sources have changed: the fault can't be planted any more, or the test is not there. */
  | { readonly kind: 'stale'; readonly why: string }

/** Plants a mutant in a copy of the tree and runs its test there. */
export async function tryMutant({ edits, test }: Mutant): Promise<Verdict> {
  return inCopy(async (copy) => {
    for (const { file, find, put } of edits) {
      const path = join(copy, 'src', file)
      const text = readFileSync(path, 'utf8')
      const times = text.split(find).length - 1
      if (times !== 1) return { kind: 'stale', why: `src/${file} has ${times} times: ${find.trim()}` }
      writeFileSync(
        path,
        text.replace(find, () => put),
      )
    }
    const { passed, failed, because } = await runTest(copy, test)
    if (failed.length > 0) return { kind: 'caught', by: failed, because }
    return passed.length > 0
      ? { kind: 'survived' }
      : { kind: 'stale', why: `no test of ${test.file} has "${test.name}" in its name` }
  })
}

/** Runs tests in a copy without a fault: red proves something only where this is green. */
export async function isGreenWithoutFault(test: Mutant['test']): Promise<boolean> {
  return inCopy(async (copy) => {
    const { passed, failed } = await runTest(copy, test)
    return passed.length > 0 && failed.length === 0
  })
}

async function inCopy<Answer>(act: (copy: string) => Promise<Answer>): Promise<Answer> {
  const copy = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    for (const part of ['src', 'test', 'package.json', 'tsconfig.json', 'vitest.config.ts'])
      cpSync(join(root, part), join(copy, part), { recursive: true })
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
    return await act(copy)
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

async function runTest(copy: string, { file, name }: Mutant['test']): Promise<TestRun> {
  const results = join(copy, 'results.json')
  const pattern = name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const args = [vitest, 'run', file, '--testNamePattern', pattern, '--reporter=json', `--outputFile=${results}`]
  // A seed of its own and no samples, so that a mutant is caught every time or never; and no settings of a test run around this one.
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(([key]) => !key.startsWith('VITEST') && key !== 'NODE_OPTIONS'),
  )
  // A group of its own: what a failing test leaves behind, a stopped process for one, is ended with it.
  const child = spawn(process.execPath, args, {
    cwd: copy,
    stdio: 'ignore',
    detached: true,
    env: { ...environment, HOLDFAST_SEED: '1', HOLDFAST_BOUNDARIES: 'all', CI: '1' },
  })
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, limitMs)
    child.on('error', reject)
    child.on('close', () => {
      clearTimeout(timer)
      resolve()
    })
    // The results are there before everything is torn down, and a process that was left behind can hold that up for ever.
    const look = setInterval(() => {
      if (!existsSync(results)) return
      clearInterval(look)
      setTimeout(resolve, 2_000)
    }, 200).unref()
  })
  if (child.pid !== undefined) endGroup(child.pid)
  return readResults(results)
}

function endGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // Nobody was left.
  }
}

interface TestRun {
  readonly passed: readonly string[]
  readonly failed: readonly string[]
  /** What the first failure says. */
  readonly because: string
}

function readResults(file: string): TestRun {
  if (!existsSync(file)) return { passed: [], failed: ['the run itself'], because: `it did not end within ${limitMs} ms` }
  const { testResults } = JSON.parse(readFileSync(file, 'utf8')) as {
    testResults: {
      status: string
      message?: string
      assertionResults: { status: string; title: string; failureMessages?: string[] }[]
    }[]
  }
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults)
  const failures = tests.filter(({ status }) => status === 'failed')
  const passed = tests.filter(({ status }) => status === 'passed').map(({ title }) => title)
  // A file that fails before its tests, in a beforeAll or in loading, has seen it too.
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.every((one) => one.status !== 'failed'),
  )
  const failed = [...failures.map(({ title }) => title), ...broken.map(() => 'the file itself')]
  return { passed, failed, because: failures[0]?.failureMessages?.[0] ?? broken[0]?.message ?? '' }
}
