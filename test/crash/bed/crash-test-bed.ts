import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { patience } from '../../patience.ts'
import { fixturesByStore } from '../fixtures/fixtures-by-store.ts'
import type { StoreFixture, StoreFixtures } from '../fixtures/store-fixtures.ts'
import { describeFault, type Fault } from './fault.ts'
import { type JournalEntry, readJournal } from './journal.ts'
import { ProcessPool } from './process-pool.ts'
import { type ProcessOptions, ProcessUnderTest } from './process-under-test.ts'
import { bundleProgram } from './program-bundle.ts'
import { type Account, Provider } from './provider.ts'
import { type ProcessRun, type Report, runProcess } from './run-process.ts'
import type { DurableStore } from './store-address.ts'
import type { StoreDump } from './store-dump.ts'

/** After this time a process counts as stuck. Far below the lease: nothing here may wait for a lease to expire. */
const patienceMs = patience(20_000)
const leaseMs = 60_000

/** What processes execute one after another on one store, until one of them completes. */
export interface Scenario {
  readonly runs: ProcessRun['runs']
  /** The fault of the next process; null: let it complete. Called for each process. */
  readonly nextFault: (processes: readonly ProcessResult[]) => Fault | null
  /** Prefixed to the command of the n-th process, to run it under another program. */
  readonly command?: (processNumber: number) => readonly string[]
  /** What happens at a fault. Default SIGKILL; what the process survives is executed in this process. */
  readonly failure?: 'SIGKILL' | 'outcome_unknown' | 'store_unavailable'
  /** Calls of the store fail at random; executed in this process. */
  readonly randomFailures?: ProcessRun['randomFailures']
  /** Begin with a store that is not set up, so that its creation is part of the scenario. */
  readonly isBare?: boolean
}

/** A process of a scenario: it was killed, or it completed. */
export interface ProcessResult {
  readonly number: number
  readonly fault: Fault | null
  /** Null if it ran as the child of another program. */
  readonly pid: number | null
  readonly wasKilled: boolean
  readonly report: Report | null
  /** What went wrong with the process itself. */
  readonly problem: string | null
  readonly tookMs: number
  /** The store as the process left it. */
  readonly dump: StoreDump
}

/** One store, one journal, one account at the provider, and all processes that used them. */
export interface ScenarioResult {
  readonly name: string
  readonly runs: ProcessRun['runs']
  readonly processes: readonly ProcessResult[]
  readonly journal: readonly JournalEntry[]
  readonly account: Account
  /** How a run gets from a process that was killed to the next. */
  readonly takeover: 'holder_died' | 'lease_expired'
}

/** What the processes of a scenario share. */
export interface Environment {
  readonly name: string
  readonly folder: string
  readonly journal: string
  readonly account: Account
  readonly store: StoreFixture
}

/** Runs scenarios on one kind of store. */
export class CrashTestBed {
  readonly folder: string
  readonly provider: Provider
  readonly kind: DurableStore
  /** Real SIGKILLs so far. */
  killCount = 0
  readonly #fixtures: StoreFixtures
  readonly #program: string
  readonly #pool: ProcessPool
  #scenarioCount = 0

  private constructor(fixtures: StoreFixtures, parts: { folder: string; provider: Provider; program: string }) {
    this.folder = parts.folder
    this.provider = parts.provider
    this.kind = fixtures.kind
    this.#fixtures = fixtures
    this.#program = parts.program
    this.#pool = new ProcessPool({ program: parts.program, store: fixtures.kind })
  }

  static async create(on: DurableStore | StoreFixtures): Promise<CrashTestBed> {
    const fixtures = typeof on === 'string' ? await fixturesByStore[on]() : on
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-crash-'))
    return new CrashTestBed(fixtures, {
      folder,
      provider: await Provider.start(),
      program: await bundleProgram(join(import.meta.dirname, 'program.ts')),
    })
  }

  async close(): Promise<void> {
    await this.#pool.close()
    this.provider.close()
    await this.#fixtures.close()
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** SQLite sees that a holder's process is gone; on other stores its lease has to expire. */
  get takeover(): ScenarioResult['takeover'] {
    return this.kind === 'sqlite' ? 'holder_died' : 'lease_expired'
  }

  async setUp({ isBare = false } = {}): Promise<Environment> {
    const name = `scenario-${++this.#scenarioCount}`
    const folder = join(this.folder, name)
    mkdirSync(folder)
    const store = await this.#fixtures.create({ name, folder, isBare })
    return { name, folder, journal: join(folder, 'journal'), account: this.provider.open(name), store }
  }

  async tearDown({ name, folder, store }: Environment): Promise<void> {
    await store.release()
    this.provider.forget(name)
    rmSync(folder, { recursive: true, force: true })
  }

  /** What a process is to do. Where a run can be taken over only after its lease, each process starts a lease later by the store's clock. */
  async processIn(environment: Environment, own: OwnPart): Promise<ProcessRun> {
    const { journal, name: account, store } = environment
    const clockOffsetMs = this.takeover === 'lease_expired' ? (own.number - 1) * (leaseMs + 1_000) : 0
    return {
      ...{ store: await store.addressFor(own.number), journal, port: this.provider.port, account, clockOffsetMs },
      ...{ fault: null, failure: 'SIGKILL', leaseMs, ...own },
    }
  }

  /** A process outside of the pool. */
  startProcess(how: Omit<ProcessOptions, 'program' | 'store'> = {}): ProcessUnderTest {
    return new ProcessUnderTest({ program: this.#program, store: this.kind, ...how })
  }

  /** Runs processes until one completes. */
  async run(scenario: Scenario): Promise<ScenarioResult> {
    const environment = await this.setUp({ isBare: scenario.isBare === true })
    const { name, journal, account } = environment
    const processes: ProcessResult[] = []
    try {
      for (;;) {
        const fault = scenario.nextFault(processes)
        const number = processes.length + 1
        const processRun = await this.processIn(environment, {
          ...{ number, fault, failure: scenario.failure ?? 'SIGKILL', runs: scenario.runs },
          ...(scenario.randomFailures !== undefined && { randomFailures: scenario.randomFailures, leaseMs: 500 }),
        })
        account.onCall = fault?.at === 'call' ? killAtProvider(fault, number) : undefined
        const canDie = processRun.failure === 'SIGKILL' && processRun.randomFailures === undefined
        const result = canDie ? await this.#runApart(processRun, scenario.command?.(number) ?? []) : await runHere(processRun)
        if (result.wasKilled) await environment.store.untilDisconnected(number)
        processes.push({ ...result, dump: await environment.store.dump() })
        if (!result.wasKilled) break
      }
      return { name, runs: scenario.runs, processes, journal: readJournal(journal), account, takeover: this.takeover }
    } finally {
      await this.tearDown(environment)
    }
  }

  async #runApart(processRun: ProcessRun, command: readonly string[]): Promise<Omit<ProcessResult, 'dump'>> {
    const startedAt = performance.now()
    const isPooled = command.length === 0
    const tested = isPooled ? this.#pool.take() : this.startProcess({ command })
    const { code, signal, report, errors, isStuck } = await tested.run(processRun, patienceMs)
    if (isPooled) this.#pool.giveBack(tested)
    else await tested.end()
    const wasKilled = !isStuck && report === null && (signal === 'SIGKILL' || code === 137)
    if (wasKilled) this.killCount++
    const how = isStuck ? `did not end within ${patienceMs} ms` : `ended with code ${code}, signal ${signal}`
    const { number, fault } = processRun
    const isGood = report !== null || wasKilled
    return {
      ...{ number, fault, pid: isPooled ? tested.pid : null, wasKilled, report },
      problem: isGood ? null : `process ${number} (${describeFault(fault)}) ${how}: ${errors.slice(-2_000)}`,
      tookMs: Math.round(performance.now() - startedAt),
    }
  }
}

/** What a process does not get from its environment. */
type OwnPart = Pick<ProcessRun, 'number' | 'runs'> & Partial<Omit<ProcessRun, 'store' | 'journal' | 'port' | 'account'>>

/** In this process, for faults that it survives. */
async function runHere(processRun: ProcessRun): Promise<Omit<ProcessResult, 'dump'>> {
  const startedAt = performance.now()
  const ended = await Promise.race([
    runProcess(processRun).catch((error: unknown) => String((error as Error).stack)),
    new Promise<string>((resolve) => setTimeout(() => resolve(`did not end within ${patienceMs} ms`), patienceMs).unref()),
  ])
  const { number, fault } = processRun
  const problem = typeof ended === 'string' ? `process ${number} (${describeFault(fault)}) failed: ${ended}` : null
  const report = typeof ended === 'string' ? null : (JSON.parse(JSON.stringify(ended)) as Report)
  const tookMs = Math.round(performance.now() - startedAt)
  return { number, fault, pid: process.pid, wasKilled: false, report, problem, tookMs }
}

/** Works through tasks in order, `laneCount` of them in parallel. */
export async function inLanes<Task>(
  tasks: readonly Task[],
  laneCount: number,
  work: (task: Task) => Promise<void>,
): Promise<void> {
  let next = 0
  const lane = async () => {
    while (next < tasks.length) await work(tasks[next++] as Task)
  }
  await Promise.all(Array.from({ length: laneCount }, lane))
}

function killAtProvider(fault: Extract<Fault, { at: 'call' }>, processNumber: number): NonNullable<Account['onCall']> {
  return (call, when) => {
    if (call.name !== fault.name || when !== fault.when || call.processNumber !== processNumber) return false
    process.kill(call.pid, 'SIGKILL')
    return true
  }
}
