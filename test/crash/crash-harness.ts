import { createRandom, type Random } from '../../src/testing/random.ts'
import { type CrashTestBed, inLanes, type ProcessResult, type Scenario, type ScenarioResult } from './bed/crash-test-bed.ts'
import type { Fault } from './bed/fault.ts'
import { readJournalBodies } from './bed/journal.ts'
import { violationsIn } from './rules/violations.ts'

/** The runs whose processes are killed. */
const scenarios = {
  /** A run that uses every feature that needs no one else, and another run on its thread. */
  allFeatures: [
    { workflow: 'allFeatures', id: 'main', threadId: 'diary', input: { round: 1 } },
    { workflow: 'reader', id: 'second', threadId: 'diary' },
  ],
  /** A run that waits for children, signals and answers. */
  waitsForOthers: [{ workflow: 'waitsForOthers', id: 'waiter', threadId: 'waiter' }],
  /** A run that writes a stream and sends notifications. */
  notifiesOthers: [{ workflow: 'notifiesOthers', id: 'notifier', threadId: 'notifier' }],
  /** A run whose work is an agent of the AI SDK. */
  agent: [{ workflow: 'agent', id: 'agent', threadId: 'agent' }],
  /** A run that remembers. */
  remembers: [{ workflow: 'remembers', id: 'rememberer', threadId: 'diary' }],
  /** A run that saves artifacts. */
  savesArtifacts: [{ workflow: 'savesArtifacts', id: 'saver', threadId: 'diary' }],
} as const satisfies Record<string, Scenario['runs']>

export type ScenarioName = keyof typeof scenarios

export interface CrashResult {
  readonly killCount: number
  readonly scenarioCount: number
  readonly violations: readonly string[]
}

/** Runs one scenario many times, each time with faults in other places. */
export class CrashHarness {
  readonly #bed: CrashTestBed
  readonly #undisturbed: ScenarioResult
  readonly #laneCount: number
  readonly #runs: Scenario['runs']
  readonly boundaries: readonly Fault[]

  private constructor(bed: CrashTestBed, undisturbed: ScenarioResult, laneCount: number) {
    this.#bed = bed
    this.#runs = undisturbed.runs
    this.#undisturbed = undisturbed
    this.#laneCount = laneCount
    this.boundaries = boundariesOf(undisturbed)
  }

  /** Runs the scenario once without a fault: this shows where faults can be injected and what the outcome must be. */
  static async prepare(
    bed: CrashTestBed,
    { laneCount = 2, scenario = 'allFeatures' }: { laneCount?: number; scenario?: ScenarioName } = {},
  ): Promise<CrashHarness> {
    const undisturbed = await bed.run({ runs: scenarios[scenario], nextFault: () => null })
    const violations = violationsIn(undisturbed, undisturbed)
    if (violations.length > 0) throw new Error(`The undisturbed scenario violates rules:\n${violations.join('\n')}`)
    return new CrashHarness(bed, undisturbed, laneCount)
  }

  /** Every n-th boundary; another seed selects others. */
  sample({ every, seed }: { every: number; seed: number }): readonly Fault[] {
    return this.boundaries.filter((_, index) => index % every === seed % every)
  }

  /** One kill at each boundary, each in a separate store. */
  killOnce(boundaries: readonly Fault[] = this.boundaries, onScenario?: () => void): Promise<CrashResult> {
    return this.#runAll(
      boundaries.map((fault) => ({
        runs: this.#runs,
        nextFault: (processes: readonly ProcessResult[]) => (processes.length === 0 ? fault : null),
      })),
      onScenario,
    )
  }

  /**
   * The store fails once at each of its writes, or at every n-th: nothing was written, or everything was and the caller does not know.
   * The process survives.
   */
  failOnce(
    failure: 'outcome_unknown' | 'store_unavailable',
    { every = 1, seed = 0, onScenario }: { every?: number; seed?: number; onScenario?: () => void } = {},
  ): Promise<CrashResult> {
    // A run whose claim got lost is picked up when its lease has expired, which another test covers.
    const isRight = (fault: Fault) =>
      fault.at === 'act' && fault.act !== 'claim' && (failure === 'outcome_unknown' || fault.when === 'before')
    return this.#runAll(
      this.boundaries
        .filter(isRight)
        .filter((_, index) => index % every === seed % every)
        .map((fault) => ({ runs: this.#runs, failure, nextFault: () => fault })),
      onScenario,
    )
  }

  /** Each call of the store may fail, before or after it was carried out; each scenario has a seed. */
  failByChance(
    count: number,
    { probability, seed }: { probability: number; seed: number },
    onScenario?: () => void,
  ): Promise<CrashResult> {
    const scenarios = Array.from({ length: count }, (_, index) => ({
      runs: this.#runs,
      randomFailures: { probability, seed: seed + index },
      nextFault: () => null,
    }))
    return this.#runAll(scenarios, onScenario)
  }

  /** A kill, and another during the recovery, at places that the seed selects. */
  killTwice(count: number, seed: number, onScenario?: () => void): Promise<CrashResult> {
    const random = createRandom(seed)
    const scenarios = Array.from({ length: count }, () => {
      const when = random.chance(0.5) ? ('before' as const) : ('after' as const)
      const second: Fault = random.chance(0.1)
        ? random.pick(this.boundaries)
        : { at: 'act', act: 'commit', nth: random.integer(1, 12), when }
      const faults = [random.pick(this.boundaries), second]
      return { runs: this.#runs, nextFault: (processes: readonly ProcessResult[]) => faults[processes.length] ?? null }
    })
    return this.#runAll(scenarios, onScenario)
  }

  /** Kill after kill in one store, each soon after the one before, until the runs have completed nevertheless. */
  killRepeatedly(count: number, seed: number, onScenario?: () => void): Promise<CrashResult> {
    const scenarios = Array.from({ length: count }, (_, index) => {
      const random = createRandom(seed + index)
      return { runs: this.#runs, nextFault: (processes: readonly ProcessResult[]) => faultSoon(processes, random) }
    })
    return this.#runAll(scenarios, onScenario)
  }

  async #runAll(scenarios: readonly Scenario[], onScenario?: () => void): Promise<CrashResult> {
    const killsBefore = this.#bed.killCount
    const violations: string[] = []
    await inLanes(scenarios, this.#laneCount, async (scenario) => {
      const result = await this.#bed.run(scenario)
      violations.push(...violationsIn(result, this.#undisturbed))
      onScenario?.()
    })
    return { killCount: this.#bed.killCount - killsBefore, scenarioCount: scenarios.length, violations }
  }
}

/** Everything that the undisturbed scenario did, as places for a fault. */
function boundariesOf({ processes, journal, account }: ScenarioResult): Fault[] {
  const acts = processes[0]?.report?.acts ?? {}
  const faults: Fault[] = []
  for (const act of ['commit', 'transact', 'deliver'] as const) {
    for (let nth = 1; nth <= (acts[act] ?? 0); nth++)
      for (const when of ['before', 'after'] as const) faults.push({ at: 'act', act, nth, when })
  }
  // Later claims find nothing, and their number depends on timing.
  for (const nth of [1, 2]) for (const when of ['before', 'after'] as const) faults.push({ at: 'act', act: 'claim', nth, when })
  for (const { path, nth } of readJournalBodies(journal)) faults.push({ at: 'body', path, nth })
  for (const name of new Set(account.calls.map((call) => call.name))) {
    faults.push({ at: 'call', name, when: 'received' }, { at: 'call', name, when: 'acted' }, { at: 'answer', name })
  }
  return faults
}

/**
 * A place a few writes ahead. A run that was claimed twice without progress, or a step that was running at two deaths, may make
 * progress first: otherwise it would rightly be given up (poisoned, worker_died).
 */
function faultSoon(processes: readonly ProcessResult[], random: Random): Fault | null {
  if (processes.length > 200) return null
  const last = processes.at(-1)
  const needsProgress = last !== undefined && (hasClaimsWithoutProgress(last) || hasStepThatWasRunning(last))
  const nth = needsProgress ? random.integer(8, 10) : random.integer(2, 5)
  return { at: 'act', act: 'commit', nth, when: random.chance(0.5) ? 'before' : 'after' }
}

function hasClaimsWithoutProgress({ dump }: ProcessResult): boolean {
  return dump.runs.some(({ claimsWithoutProgress }) => claimsWithoutProgress >= 2)
}

function hasStepThatWasRunning({ dump }: ProcessResult): boolean {
  const deaths = new Map<string, number>()
  for (const { type, data } of dump.threads.flatMap(({ log }) => log)) {
    if (type !== 'run_recovered') continue
    for (const key of (data['running'] as string[] | undefined) ?? []) deaths.set(key, (deaths.get(key) ?? 0) + 1)
  }
  return [...deaths.values()].some((count) => count >= 1)
}
