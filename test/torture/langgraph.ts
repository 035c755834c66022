import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

export interface LangGraphResult {
  readonly tests: number
  readonly violations: readonly string[]
}

export interface LangGraphOptions {
  readonly stores: readonly string[]
  readonly seed: number
  /** Random graphs on each store. */
  readonly graphs: number
}

/** All tests of the adapter for LangGraph.js: its validation suite, random graphs beside MemorySaver, and a SIGKILL at every moment. */
export async function tortureLangGraph({ stores, seed, graphs }: LangGraphOptions): Promise<LangGraphResult> {
  const root = resolve(import.meta.dirname, '../..')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-torture-'))
  const outputFile = join(folder, 'langgraph.json')
  const args = ['run', 'test/langgraph', '--reporter=json', `--outputFile=${outputFile}`, '--testTimeout=7200000']
  const env = {
    ...process.env,
    ...{ STORES: stores.join(','), HOLDFAST_SEED: String(seed), HOLDFAST_GRAPHS: String(graphs), HOLDFAST_KILLS: '1000' },
  }
  try {
    const child = spawn(process.execPath, [join(root, 'node_modules/vitest/vitest.mjs'), ...args], {
      cwd: root,
      env,
      stdio: 'inherit',
    })
    const code = await new Promise((done) => child.once('exit', done))
    const { numTotalTests, testResults } = JSON.parse(readFileSync(outputFile, 'utf8')) as Report
    const failed = testResults.flatMap(({ name, message, assertionResults }) => [
      ...(message === '' ? [] : [`${name}: ${message}`]),
      ...assertionResults
        .filter(({ status }) => status === 'failed')
        .map(({ fullName, failureMessages }) => `${fullName}: ${failureMessages[0]}`),
    ])
    return {
      tests: numTotalTests,
      violations: failed.length === 0 && code !== 0 ? [`vitest ended with ${String(code)}`] : failed,
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Report {
  readonly numTotalTests: number
  readonly testResults: readonly {
    readonly name: string
    readonly message: string
    readonly assertionResults: readonly {
      readonly status: string
      readonly fullName: string
      readonly failureMessages: readonly string[]
    }[]
  }[]
}
