import { type ChildProcess, spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Life, Report } from './live.ts'
import type { DurableStore } from './store-address.ts'

/** How a life went, as its process shows it. */
export interface LifeEnd {
  /** Null when the process ended before it had one. */
  readonly report: Report | null
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly errors: string
  /** It took too long, and was killed for it. */
  readonly isStuck: boolean
}

export interface LifeProcessOptions {
  readonly program: string
  readonly store: DurableStore
  /** Put in front of the command, to run it under another program. */
  readonly command?: readonly string[]
  readonly nodeArgs?: readonly string[]
}

/** A process under test, seen from outside. It lives the lives that it is given one after another, unless it is killed in one. */
export class LifeProcess {
  readonly child: ChildProcess
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  isOver = false
  #reports: string[] = []
  #errors = ''
  #onReport: (() => void) | undefined

  constructor({ program, store, command = [], nodeArgs = [] }: LifeProcessOptions) {
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
    // The other side may be killed while it is told something.
    this.child.stdin?.on('error', () => {})
    this.ended = new Promise((resolve, reject) => {
      this.child.on('error', reject)
      this.child.on('close', (code, signal) => {
        this.isOver = true
        resolve({ code, signal })
      })
    })
  }

  get pid(): number {
    return this.child.pid as number
  }

  /** Has it live a life. One that does not end in time is killed. */
  async live(life: Life, limitMs: number): Promise<LifeEnd> {
    this.child.stdin?.write(`${JSON.stringify(life)}\n`)
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

  /** Lets it come to its end: there are no more lives for it. */
  async dismiss(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    this.child.stdin?.end()
    return this.ended
  }
}
