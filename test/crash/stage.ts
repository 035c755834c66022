import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { patience } from '../patience.ts'
import { Cast } from './cast.ts'
import { describeFault, type Fault } from './fault.ts'
import type { Ground, LentStore } from './grounds/ground.ts'
import { grounds } from './grounds/grounds.ts'
import { type JournalEntry, readJournal } from './journal.ts'
import { LifeProcess, type LifeProcessOptions } from './life-process.ts'
import { type Life, live, type Report } from './live.ts'
import { bundleProgram } from './program-bundle.ts'
import { type Account, Provider } from './provider.ts'
import type { DurableStore } from './store-address.ts'
import type { StoreDump } from './store-dump.ts'

/** How long a process may take before it counts as stuck. Far below the lease: nothing here may wait for one to run out. */
const patienceMs = patience(20_000)
const leaseMs = 60_000

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
  /** How a run comes from a life that was killed to the next. */
  readonly takeover: 'holder_died' | 'lease_expired'
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
  /** Begin with a store that is not set up, so that its creation is part of the scene. */
  readonly isBare?: boolean
}

/** Where a scene is played: a store, a journal, an account at the provider. */
export interface OpenedScene {
  readonly name: string
  readonly folder: string
  readonly journal: string
  readonly account: Account
  readonly store: LentStore
}

/** Where scenes are played, all on one kind of store. */
export class Stage {
  readonly folder: string
  readonly provider: Provider
  readonly kind: DurableStore
  /** Real SIGKILLs so far. */
  killCount = 0
  readonly #ground: Ground
  readonly #program: string
  readonly #cast: Cast
  #sceneCount = 0

  private constructor(ground: Ground, parts: { folder: string; provider: Provider; program: string }) {
    this.folder = parts.folder
    this.provider = parts.provider
    this.kind = ground.kind
    this.#ground = ground
    this.#program = parts.program
    this.#cast = new Cast({ program: parts.program, store: ground.kind })
  }

  static async build(on: DurableStore | Ground): Promise<Stage> {
    const ground = typeof on === 'string' ? await grounds[on]() : on
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-crash-'))
    return new Stage(ground, {
      folder,
      provider: await Provider.start(),
      program: await bundleProgram(join(import.meta.dirname, 'program.ts')),
    })
  }

  async close(): Promise<void> {
    await this.#cast.dismiss()
    this.provider.close()
    await this.#ground.close()
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** SQLite sees that a holder's process is gone; elsewhere its lease has to run out. */
  get takeover(): PlayedScene['takeover'] {
    return this.kind === 'sqlite' ? 'holder_died' : 'lease_expired'
  }

  async openScene({ isBare = false } = {}): Promise<OpenedScene> {
    const name = `scene-${++this.#sceneCount}`
    const folder = join(this.folder, name)
    mkdirSync(folder)
    const store = await this.#ground.lend({ name, folder, isBare })
    return { name, folder, journal: join(folder, 'journal'), account: this.provider.open(name), store }
  }

  async closeScene({ name, folder, store }: OpenedScene): Promise<void> {
    await store.giveBack()
    this.provider.forget(name)
    rmSync(folder, { recursive: true, force: true })
  }

  /** A life in a scene. Where only the lease tells, a later one comes when those of the earlier are over by the store's clock. */
  async lifeIn(scene: OpenedScene, own: OwnPart): Promise<Life> {
    const { journal, name: account, store } = scene
    const clockOffsetMs = this.takeover === 'lease_expired' ? (own.number - 1) * (leaseMs + 1_000) : 0
    return {
      ...{ store: await store.addressFor(own.number), journal, port: this.provider.port, account, clockOffsetMs },
      ...{ fault: null, strike: 'SIGKILL', leaseMs, ...own },
    }
  }

  /** A process of its own for one life. */
  startProcess(how: Omit<LifeProcessOptions, 'program' | 'store'> = {}): LifeProcess {
    return new LifeProcess({ program: this.#program, store: this.kind, ...how })
  }

  /** Plays lives until one comes to its end. */
  async play(scene: Scene): Promise<PlayedScene> {
    const opened = await this.openScene({ isBare: scene.isBare === true })
    const { name, journal, account } = opened
    const lives: PlayedLife[] = []
    try {
      for (;;) {
        const fault = scene.nextFault(lives)
        const number = lives.length + 1
        const life = await this.lifeIn(opened, {
          ...{ number, fault, strike: scene.strike ?? 'SIGKILL', runs: scene.runs },
          ...(scene.chance !== undefined && { chance: scene.chance, leaseMs: 500 }),
        })
        account.onCall = fault?.at === 'call' ? killerAtProvider(fault, number) : undefined
        const isMortal = life.strike === 'SIGKILL' && life.chance === undefined
        const played = isMortal ? await this.#live(life, scene.command?.(number) ?? []) : await liveHere(life)
        if (played.wasKilled) await opened.store.untilLeft(number)
        lives.push({ ...played, dump: await opened.store.dump() })
        if (!played.wasKilled) break
      }
      return { name, runs: scene.runs, lives, journal: readJournal(journal), account, takeover: this.takeover }
    } finally {
      await this.closeScene(opened)
    }
  }

  async #live(life: Life, command: readonly string[]): Promise<Omit<PlayedLife, 'dump'>> {
    const startedAt = performance.now()
    const isOfTheCast = command.length === 0
    const actor = isOfTheCast ? this.#cast.take() : this.startProcess({ command })
    const { code, signal, report, errors, isStuck } = await actor.live(life, patienceMs)
    if (isOfTheCast) this.#cast.giveBack(actor)
    else await actor.dismiss()
    const wasKilled = !isStuck && report === null && (signal === 'SIGKILL' || code === 137)
    if (wasKilled) this.killCount++
    const how = isStuck ? `did not end within ${patienceMs} ms` : `ended with code ${code}, signal ${signal}`
    const isGood = report !== null || wasKilled
    return {
      ...{ number: life.number, fault: life.fault, pid: isOfTheCast ? actor.pid : null, wasKilled, report },
      problem: isGood ? null : `life ${life.number} (${describeFault(life.fault)}) ${how}: ${errors.slice(-2_000)}`,
      tookMs: Math.round(performance.now() - startedAt),
    }
  }
}

/** What a life does not have from its scene. */
type OwnPart = Pick<Life, 'number' | 'runs'> & Partial<Omit<Life, 'store' | 'journal' | 'port' | 'account'>>

/** A life in this process, for faults that do not end it. */
async function liveHere(life: Life): Promise<Omit<PlayedLife, 'dump'>> {
  const startedAt = performance.now()
  const ended = await Promise.race([
    live(life).catch((error: unknown) => String((error as Error).stack)),
    new Promise<string>((resolve) => setTimeout(() => resolve(`did not end within ${patienceMs} ms`), patienceMs).unref()),
  ])
  const problem = typeof ended === 'string' ? `life ${life.number} (${describeFault(life.fault)}) failed: ${ended}` : null
  const report = typeof ended === 'string' ? null : (JSON.parse(JSON.stringify(ended)) as Report)
  const tookMs = Math.round(performance.now() - startedAt)
  return { number: life.number, fault: life.fault, pid: process.pid, wasKilled: false, report, problem, tookMs }
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
