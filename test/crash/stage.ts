import { type ChildProcess, spawn } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import BetterSqlite3 from 'better-sqlite3'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { describeFault, type Fault } from './fault.ts'
import { type JournalEntry, readJournal } from './journal.ts'
import { type Life, live, type Report } from './live.ts'
import { type Account, Provider } from './provider.ts'
import { dumpStore, type StoreDump } from './store-dump.ts'

/** How long a process may take before it counts as stuck. Far below the lease: nothing here may wait for one to run out. */
const patienceMs = 20_000
const leaseMs = 60_000

const program = join(import.meta.dirname, 'program.ts')

/** A process that lived in a scene until it was killed, or came to its end. */
export interface PlayedLife {
  readonly number: number
  readonly fault: Fault | null
  /** Null when it ran under another program, whose child it was. */
  readonly pid: number | null
  readonly wasKilled: boolean
  readonly report: Report | null
  /** What went wrong with the process itself. */
  readonly problem: string | null
  readonly tookMs: number
  /** The store as it left it. */
  readonly dump: StoreDump
}

/** A scene that was played: one store, one journal, one account at the provider, one life after another. */
export interface PlayedScene {
  readonly name: string
  readonly runs: Life['runs']
  readonly lives: readonly PlayedLife[]
  readonly journal: readonly JournalEntry[]
  readonly account: Account
}

export interface Scene {
  readonly runs: Life['runs']
  /** The fault of the next life; null: let it come to its end. Asked anew for each life. */
  readonly nextFault: (lives: readonly PlayedLife[]) => Fault | null
  /** Put in front of the command, to run it under another program. */
  readonly command?: (life: number) => readonly string[]
  /** What happens at a fault. Default a SIGKILL; what leaves the process alive is played in this one. */
  readonly strike?: 'SIGKILL' | 'outcome_unknown' | 'store_unavailable'
  /** Each act of the store fails by chance; played in this process. */
  readonly chance?: Life['chance']
  /** Begin without a file, so that its creation is part of the scene. */
  readonly isBare?: boolean
}

/** Where scenes are played: a folder, a provider, and a fresh store to copy. */
export class Stage {
  readonly folder: string
  readonly provider: Provider
  /** Real SIGKILLs so far. */
  killCount = 0
  #sceneCount = 0

  private constructor(folder: string, provider: Provider) {
    this.folder = folder
    this.provider = provider
  }

  static async build(): Promise<Stage> {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-crash-'))
    const file = join(folder, 'template.db')
    const db = new BetterSqlite3(file)
    createOrders(db)
    db.close()
    const store = await openSqliteStore({ file, durability: 'full' })
    await store.migrate()
    await store.close()
    return new Stage(folder, await Provider.start())
  }

  close(): void {
    this.provider.close()
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** A folder with a fresh store in it, and an account at the provider. */
  openScene({ isBare = false } = {}): { name: string; folder: string; file: string; journal: string; account: Account } {
    const name = `scene-${++this.#sceneCount}`
    const folder = join(this.folder, name)
    mkdirSync(folder)
    const file = join(folder, 'store.db')
    if (!isBare) copyFileSync(join(this.folder, 'template.db'), file)
    return { name, folder, file, journal: join(folder, 'journal'), account: this.provider.open(name) }
  }

  closeScene({ name, folder }: { name: string; folder: string }): void {
    this.provider.forget(name)
    rmSync(folder, { recursive: true, force: true })
  }

  /** Plays lives until one comes to its end. */
  async play(scene: Scene): Promise<PlayedScene> {
    const opened = this.openScene({ isBare: scene.isBare === true })
    const { name, file, journal, account } = opened
    const lives: PlayedLife[] = []
    try {
      for (;;) {
        const fault = scene.nextFault(lives)
        const life: Life = {
          ...{ number: lives.length + 1, file, journal, port: this.provider.port, account: name },
          ...{ fault, strike: scene.strike ?? 'SIGKILL', leaseMs, runs: scene.runs },
          ...(scene.chance !== undefined && { chance: scene.chance, leaseMs: 500 }),
        }
        account.onCall = fault?.at === 'call' ? killerAtProvider(fault, life.number) : undefined
        const played =
          life.strike === 'SIGKILL' && life.chance === undefined
            ? await this.#live(life, scene.command?.(life.number) ?? [])
            : await liveHere(life)
        lives.push(played)
        if (!played.wasKilled) break
      }
      return { name, runs: scene.runs, lives, journal: readJournal(journal), account }
    } finally {
      this.closeScene(opened)
    }
  }

  async #live(life: Life, command: readonly string[]): Promise<PlayedLife> {
    const startedAt = performance.now()
    const child = startLife(life, command)
    const { code, signal, output, errors, isStuck } = await untilOver(child)
    const wasKilled = !isStuck && (signal === 'SIGKILL' || code === 137)
    if (wasKilled) this.killCount++
    const isDone = code === 0 && output !== ''
    const how = isStuck ? `did not end within ${patienceMs} ms` : `ended with code ${code}, signal ${signal}`
    return {
      number: life.number,
      fault: life.fault,
      pid: command.length === 0 ? (child.pid ?? 0) : null,
      wasKilled,
      report: isDone ? (JSON.parse(output) as Report) : null,
      problem: isDone || wasKilled ? null : `life ${life.number} (${describeFault(life.fault)}) ${how}: ${errors.slice(-2_000)}`,
      tookMs: Math.round(performance.now() - startedAt),
      dump: await dumpStore(life.file),
    }
  }
}

/** A life in this process, for faults that do not end it. */
async function liveHere(life: Life): Promise<PlayedLife> {
  const startedAt = performance.now()
  const ended = await Promise.race([
    live(life).catch((error: unknown) => String((error as Error).stack)),
    new Promise<string>((resolve) => setTimeout(() => resolve(`did not end within ${patienceMs} ms`), patienceMs).unref()),
  ])
  const problem = typeof ended === 'string' ? `life ${life.number} (${describeFault(life.fault)}) failed: ${ended}` : null
  const report = typeof ended === 'string' ? null : (JSON.parse(JSON.stringify(ended)) as Report)
  const tookMs = Math.round(performance.now() - startedAt)
  return {
    number: life.number,
    fault: life.fault,
    pid: process.pid,
    wasKilled: false,
    report,
    problem,
    tookMs,
    dump: await dumpStore(life.file),
  }
}

/** The environment of a process under test: sources instead of the build, and compiled code kept between processes. */
export function childEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: join(tmpdir(), 'holdfast-compile-cache') }
}

export function startLife(life: Life, command: readonly string[] = [], nodeArgs: readonly string[] = []): ChildProcess {
  const all = [...command, process.execPath, '--conditions=holdfast-source', ...nodeArgs, program, JSON.stringify(life)]
  return spawn(all[0] as string, all.slice(1), { stdio: ['pipe', 'pipe', 'pipe'], env: childEnvironment() })
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly output: string
  readonly errors: string
  readonly isStuck: boolean
}

/** Waits for the end of a process; one that does not come is killed. */
export function untilOver(child: ChildProcess, limitMs = patienceMs): Promise<Ended> {
  return new Promise((resolve, reject) => {
    let output = ''
    let errors = ''
    let isStuck = false
    child.stdout?.on('data', (chunk) => {
      output += chunk
    })
    child.stderr?.on('data', (chunk) => {
      errors += chunk
    })
    const timer = setTimeout(() => {
      isStuck = true
      child.kill('SIGKILL')
    }, limitMs)
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code, signal, output, errors, isStuck })
    })
  })
}

/** Works through tasks, some at a time, in order. */
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

function killerAtProvider(fault: Extract<Fault, { at: 'call' }>, life: number): NonNullable<Account['onCall']> {
  return (call, when) => {
    if (call.name !== fault.name || when !== fault.when || call.life !== life) return false
    process.kill(call.pid, 'SIGKILL')
    return true
  }
}

function createOrders(db: BetterSqlite3.Database): void {
  db.exec('CREATE TABLE orders (run TEXT NOT NULL, round INTEGER NOT NULL)')
}
