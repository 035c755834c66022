import { createRandom, type Random } from '../../src/testing/random.ts'
import type { Fault } from './fault.ts'
import { readJournalBodies } from './journal.ts'
import { brokenRules } from './rules.ts'
import { inLanes, type PlayedLife, type PlayedScene, type Scene, type Stage } from './stage.ts'

/**
 * Who is killed: the run that does all it can do by itself, and another on its thread; or the run that waits for others; or one
 * of which others hear.
 */
const casts = {
  everything: [
    { workflow: 'everything', id: 'main', threadId: 'diary', input: { round: 1 } },
    { workflow: 'reader', id: 'second', threadId: 'diary' },
  ],
  envoy: [{ workflow: 'envoy', id: 'envoy', threadId: 'envoy' }],
  herald: [{ workflow: 'herald', id: 'herald', threadId: 'herald' }],
} as const satisfies Record<string, Scene['runs']>

export interface CrashResult {
  readonly kills: number
  readonly scenes: number
  readonly broken: readonly string[]
}

/** Kills runs everywhere. */
export class CrashHarness {
  readonly #stage: Stage
  readonly #undisturbed: PlayedScene
  readonly #laneCount: number
  readonly #runs: Scene['runs']
  readonly boundaries: readonly Fault[]

  private constructor(stage: Stage, undisturbed: PlayedScene, laneCount: number) {
    this.#stage = stage
    this.#runs = undisturbed.runs
    this.#undisturbed = undisturbed
    this.#laneCount = laneCount
    this.boundaries = boundariesOf(undisturbed)
  }

  /** Runs once without a fault, to know what there is to kill and what must come out. */
  static async prepare(
    stage: Stage,
    { laneCount = 2, cast = 'everything' }: { laneCount?: number; cast?: keyof typeof casts } = {},
  ): Promise<CrashHarness> {
    const undisturbed = await stage.play({ runs: casts[cast], nextFault: () => null })
    const broken = brokenRules(undisturbed, undisturbed)
    if (broken.length > 0) throw new Error(`The undisturbed run breaks rules:\n${broken.join('\n')}`)
    return new CrashHarness(stage, undisturbed, laneCount)
  }

  /** Every n-th boundary, by turns from seed to seed. */
  sample({ every, seed }: { every: number; seed: number }): readonly Fault[] {
    return this.boundaries.filter((_, index) => index % every === seed % every)
  }

  /** One kill at each boundary, each in a store of its own. */
  killOnce(boundaries: readonly Fault[] = this.boundaries, onScene?: () => void): Promise<CrashResult> {
    return this.#playAll(
      boundaries.map((fault) => ({
        runs: this.#runs,
        nextFault: (lives: readonly PlayedLife[]) => (lives.length === 0 ? fault : null),
      })),
      onScene,
    )
  }

  /**
   * The store fails once at each of its writes, or at every n-th by turns: nothing was written, or all was and nobody knows. The
   * process lives on.
   */
  failOnce(
    strike: 'outcome_unknown' | 'store_unavailable',
    { every = 1, seed = 0, onScene }: { every?: number; seed?: number; onScene?: () => void } = {},
  ): Promise<CrashResult> {
    // A claim whose answer is lost is taken up again when its lease is over: that is another test.
    const isRight = (fault: Fault) =>
      fault.at === 'act' && fault.act !== 'claim' && (strike === 'outcome_unknown' || fault.when === 'before')
    return this.#playAll(
      this.boundaries
        .filter(isRight)
        .filter((_, index) => index % every === seed % every)
        .map((fault) => ({ runs: this.#runs, strike, nextFault: () => fault })),
      onScene,
    )
  }

  /** Every act of the store fails now and then, before or after it was done, with a seed for each scene. */
  failByChance(
    count: number,
    { ofFailure, seed }: { ofFailure: number; seed: number },
    onScene?: () => void,
  ): Promise<CrashResult> {
    const scenes = Array.from({ length: count }, (_, index) => ({
      runs: this.#runs,
      chance: { ofFailure, seed: seed + index },
      nextFault: () => null,
    }))
    return this.#playAll(scenes, onScene)
  }

  /** A kill, and another while it recovers, at places chosen by the seed. */
  killTwice(count: number, seed: number, onScene?: () => void): Promise<CrashResult> {
    const random = createRandom(seed)
    const scenes = Array.from({ length: count }, () => {
      const when = random.chance(0.5) ? ('before' as const) : ('after' as const)
      const again: Fault = random.chance(0.1)
        ? random.pick(this.boundaries)
        : { at: 'act', act: 'commit', nth: random.integer(1, 12), when }
      const faults = [random.pick(this.boundaries), again]
      return { runs: this.#runs, nextFault: (lives: readonly PlayedLife[]) => faults[lives.length] ?? null }
    })
    return this.#playAll(scenes, onScene)
  }

  /** Kill after kill in one store, each soon after the last, until the runs are through all the same. */
  killOnAndOn(count: number, seed: number, onScene?: () => void): Promise<CrashResult> {
    const scenes = Array.from({ length: count }, (_, index) => {
      const random = createRandom(seed + index)
      return { runs: this.#runs, nextFault: (lives: readonly PlayedLife[]) => soonFault(lives, random) }
    })
    return this.#playAll(scenes, onScene)
  }

  async #playAll(scenes: readonly Scene[], onScene?: () => void): Promise<CrashResult> {
    const killsBefore = this.#stage.killCount
    const broken: string[] = []
    await inLanes(scenes, this.#laneCount, async (scene) => {
      const played = await this.#stage.play(scene)
      broken.push(...brokenRules(played, this.#undisturbed))
      onScene?.()
    })
    return { kills: this.#stage.killCount - killsBefore, scenes: scenes.length, broken }
  }
}

/** Everything that the undisturbed run did, as places to kill it. */
function boundariesOf({ lives, journal, account }: PlayedScene): Fault[] {
  const acts = lives[0]?.report?.acts ?? {}
  const faults: Fault[] = []
  for (const act of ['commit', 'transact', 'deliver'] as const) {
    for (let nth = 1; nth <= (acts[act] ?? 0); nth++)
      for (const when of ['before', 'after'] as const) faults.push({ at: 'act', act, nth, when })
  }
  // Later claims find nothing: how many there are is a matter of time.
  for (const nth of [1, 2]) for (const when of ['before', 'after'] as const) faults.push({ at: 'act', act: 'claim', nth, when })
  for (const { path, nth } of readJournalBodies(journal)) faults.push({ at: 'body', path, nth })
  for (const name of new Set(account.calls.map((call) => call.name))) {
    faults.push({ at: 'call', name, when: 'received' }, { at: 'call', name, when: 'acted' }, { at: 'answer', name })
  }
  return faults
}

/**
 * A place a few writes ahead. A run that was claimed twice in vain, or a step that was running at two deaths, is let get
 * somewhere first: otherwise it would rightly be given up (poisoned, worker_died).
 */
function soonFault(lives: readonly PlayedLife[], random: Random): Fault | null {
  if (lives.length > 200) return null
  const last = lives.at(-1)
  const isTired = last !== undefined && (hasClaimsInVain(last) || hasDeadlyStep(last))
  const nth = isTired ? random.integer(8, 10) : random.integer(2, 5)
  return { at: 'act', act: 'commit', nth, when: random.chance(0.5) ? 'before' : 'after' }
}

function hasClaimsInVain({ dump }: PlayedLife): boolean {
  return dump.runs.some(({ claimsWithoutProgress }) => claimsWithoutProgress >= 2)
}

function hasDeadlyStep({ dump }: PlayedLife): boolean {
  const deaths = new Map<string, number>()
  for (const { type, data } of dump.threads.flatMap(({ log }) => log)) {
    if (type !== 'run_recovered') continue
    for (const key of (data['running'] as string[] | undefined) ?? []) deaths.set(key, (deaths.get(key) ?? 0) + 1)
  }
  return [...deaths.values()].some((count) => count >= 1)
}
