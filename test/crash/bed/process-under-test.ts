import { type ChildProcess, spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ProcessRun, Report } from './run-process.ts'
import type { DurableStore } from './store-address.ts'

/** How a process ended, or what it reported. */
export interface ProcessEnd {
  /** Null if the process ended before it could report. */
  readonly report: Report | null
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly errors: string
  /** It exceeded its time limit and was killed. */
  readonly isStuck: boolean
}

export interface ProcessOptions {
  readonly program: string
  readonly store: DurableStore
  /** Prefixed to the command, to run it under another program. */
  readonly command?: readonly string[]
  readonly nodeArgs?: readonly string[]
}

/** A process under test, seen from outside. It executes one `ProcessRun` after another until it is killed in one. */
export class ProcessUnderTest {
  readonly child: ChildProcess
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  hasEnded = false
  #reports: string[] = []
  #errors = ''
  #onReport: (() => void) | undefined

  constructor({ program, store, command = [], nodeArgs = [] }: ProcessOptions) {
    const all = [...command, process.execPath, ...nodeArgs, program, store]
    // Compiled code is kept between processes.
    const env = { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: join(tmpdir(), 'holdfast-compile-cache') }
    this.child = spawn(all[0] as string, all.slice(1), { stdio: ['pipe', 'pipe', 'pipe'], env })
    let output = ''
    this.child.stdout?.on('data', (chunk) => {
      const lines = `${output}${chunk}`.split('\n')
      output = lines.pop() as string
      if (lines.length === 0) return
      this.#reports.push(...lines)
      this.#onReport?.()
    })
    this.child.stderr?.on('data', (chunk) => {
      this.#errors = `${this.#errors}${chunk}`.slice(-4_000)
    })
    // The process may be killed while something is written to it.
    this.child.stdin?.on('error', () => {})
    this.ended = new Promise((resolve, reject) => {
      this.child.on('error', reject)
      this.child.on('close', (code, signal) => {
        this.hasEnded = true
        resolve({ code, signal })
      })
    })
  }

  get pid(): number {
    return this.child.pid as number
  }

  /** If it takes longer than the limit, the process is killed. */
  async run(processRun: ProcessRun, limitMs: number): Promise<ProcessEnd> {
    this.child.stdin?.write(`${JSON.stringify(processRun)}\n`)
    let isStuck = false
    const timer = setTimeout(() => {
      isStuck = true
      this.child.kill('SIGKILL')
    }, limitMs)
    const reported = new Promise<null>((resolve) => {
      this.#onReport = () => resolve(null)
    })
    const end = await Promise.race([reported, this.ended])
    clearTimeout(timer)
    const report = this.#reports.shift()
    const errors = this.#errors
    this.#errors = ''
    return {
      ...{ code: end?.code ?? null, signal: end?.signal ?? null, errors, isStuck },
      report: report === undefined ? null : (JSON.parse(report) as Report),
    }
  }

  /** Ends it once it is idle. */
  async end(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    this.child.stdin?.end()
    return this.ended
  }
}
