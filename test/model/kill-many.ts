import { type ChildProcess, fork } from 'node:child_process'
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createRandom } from '../../src/testing/random.ts'
import type { Fault } from './acts.ts'
import type { Case } from './case.ts'
import { findFeatures } from './features.ts'
import { generateCase } from './generate.ts'
import { apart, openGround, type StoreName } from './grounds.ts'
import { Journal } from './journal.ts'
import { judge, type Violation } from './oracle.ts'
import { type Observation, Table } from './run-case.ts'
import type { Finding } from './run-many.ts'
import { leaseMs, soon } from './simulated-process.ts'
import type { WorkerSpec } from './worker-process.ts'

export interface KillManyOptions {
  readonly store: Exclude<StoreName, 'memory'>
  /** Of the server; for SQLite a file is made. */
  readonly url?: string
  readonly programs: number
  readonly seed: number
  readonly onCase?: (given: Case, seen: Observation | undefined, violations: readonly Violation[]) => void
}

/** Cases that one process executes at the same time, and that are killed with it. */
const batchSize = 25
const killsPerBatch = 2

/** Plays cases whose runs are executed by a process of its own, which is killed by SIGKILL again and again. */
export async function killMany(options: KillManyOptions): Promise<Finding[]> {
  const findings: Finding[] = []
  for (let done = 0; done < options.programs; done += batchSize) {
    const count = Math.min(batchSize, options.programs - done)
    const seeds = Array.from({ length: count }, (_, index) => options.seed + done + index)
    const cases = seeds.map((seed) => generateCase(seed, { store: options.store, withoutFaults: true }))
    findings.push(...(await killBatch(cases, options)))
  }
  return findings
}

async function killBatch(cases: readonly Case[], { store, url, onCase }: KillManyOptions): Promise<Finding[]> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-model-'))
  // Between two lives nothing else may keep this process up.
  const alive = setInterval(() => {}, 1_000)
  const clockFile = join(folder, 'clock')
  let offsetMs = 0
  const advance = (ms: number) => {
    offsetMs += ms
    // Whole at every moment: others read it at any.
    writeFileSync(`${clockFile}.new`, String(offsetMs))
    renameSync(`${clockFile}.new`, clockFile)
  }
  advance(0)
  const address = store === 'sqlite' ? join(folder, 'holdfast.db') : apart(url as string, `model_${process.pid}_killed`)
  const ground = await openGround(store, () => offsetMs, address)
  const shared = await ground.openStore()
  const features = await findFeatures()
  let lives: Lives | undefined
  const isManned = () => lives?.isUp === true
  const tables = cases.map((given, index) => {
    const suffix = `-${process.pid}-${given.seed}`
    const journalFile = join(folder, `journal-${index}`)
    const table = new Table({
      ...{ given, features, advance, suffix, journal: new Journal(journalFile), isManned, progress: { phase: '' } },
      ground: { openStore: async () => shared, close: async () => {} },
    })
    return { given, table, suffix, journalFile }
  })
  const random = createRandom(cases[0]?.seed ?? 1)
  lives = new Lives((nth) => {
    const kill = nth < killsPerBatch ? { write: random.integer(1, 25), when: random.pick(['before', 'after'] as const) } : null
    const spec: WorkerSpec = {
      ...{ store, url: address, clockFile, kill, ear: `ear-${process.pid}-${cases[0]?.seed}` },
      tables: tables.map(({ given, table, suffix, journalFile }) => ({ given, suffix, journalFile, owner: table.owner })),
    }
    const file = join(folder, `spec-${nth}`)
    writeFileSync(file, JSON.stringify(spec))
    return file
  })
  lives.onKilled = () => {
    const fault: Fault = { kind: 'kill', write: 0, when: 'before' }
    for (const { table } of tables) table.noteKill(fault)
    advance(leaseMs + 1)
  }
  try {
    await lives.begin()
    const findings: Finding[] = []
    await Promise.all(
      tables.map(async ({ given, table }) => {
        const { violations, seen } = await playAndJudge(given, table)
        onCase?.(given, seen, violations)
        if (violations.length > 0) findings.push({ given, violations, ...(seen !== undefined && { seen }) })
      }),
    )
    return findings
  } finally {
    await lives.end()
    await soon(ground.close(), 5_000)
    clearInterval(alive)
    rmSync(folder, { recursive: true, force: true })
  }
}

async function playAndJudge(given: Case, table: Table): Promise<{ violations: Violation[]; seen?: Observation }> {
  try {
    const seen = await table.play()
    return { violations: judge(given, seen), seen }
  } catch (error) {
    return { violations: [{ rule: 'broken', what: String((error as Error).stack) }] }
  } finally {
    await table.clear()
  }
}

/** One process after another: each that is killed is replaced. */
class Lives {
  readonly #specOf: (nth: number) => string
  #child: ChildProcess | undefined
  #nth = 0
  #isOver = false
  #isUp = false
  onKilled = () => {}

  constructor(specOf: (nth: number) => string) {
    this.#specOf = specOf
  }

  /** A process has opened the store. */
  get isUp(): boolean {
    return this.#isUp
  }

  async begin(): Promise<void> {
    const file = this.#specOf(this.#nth++)
    const child = fork(join(import.meta.dirname, 'worker-process.ts'), [file], { execArgv: ['--conditions=holdfast-source'] })
    this.#child = child
    child.once('exit', (code, signal) => {
      this.#isUp = false
      if (this.#isOver) return
      if (signal !== 'SIGKILL') console.error(`a process of the model ended by itself: ${code} ${signal}`)
      this.onKilled()
      void this.begin()
    })
    await new Promise<void>((resolve) => {
      child.once('message', () => {
        this.#isUp = true
        resolve()
      })
      child.once('exit', () => resolve())
    })
  }

  async end(): Promise<void> {
    this.#isOver = true
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
  }
}
