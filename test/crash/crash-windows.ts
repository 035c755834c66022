import { type CrashTestBed, inLanes, type ScenarioResult } from './bed/crash-test-bed.ts'
import type { Fault } from './bed/fault.ts'
import { violationsAnywhere } from './rules/violations.ts'
import { operationCount } from './workflows/crash-window-workflows.ts'
import { type EffectClass, effectClasses } from './workflows/recorded-calls.ts'

/** The crash windows of failure-model 2.3. A result and its checkpoint are one commit here, so W5 is `result durable, no answer`. */
export const crashWindows = ['W0', 'W1', 'W2', 'W3', 'W4', 'W5', 'W6'] as const
export type CrashWindow = (typeof crashWindows)[number]

/** `step`: the provider is called from a plain step, which promises no more than at least once. */
export type WindowClass = EffectClass | 'step'
export const windowClasses: readonly WindowClass[] = ['step', ...effectClasses]

/** The outcome of the operations of a class that were killed in one window, counted at the provider and in the log. */
export interface WindowOutcome {
  readonly class: WindowClass
  readonly window: CrashWindow
  readonly killCount: number
  readonly calls: number
  /** Operations that happened more than once. */
  readonly duplicated: number
  readonly missing: number
  /** Operations that became unsure, by what the provider then said. */
  readonly unsure: { readonly happened: number; readonly not: number }
  readonly viaCheck: number
  readonly violations: readonly string[]
}

/** Kills every operation of a class in every window, and counts. */
export async function walkWindows(
  bed: CrashTestBed,
  of: WindowClass,
  { laneCount = 2, onScenario = () => {} } = {},
): Promise<WindowOutcome[]> {
  const outcomes: WindowOutcome[] = []
  const windows = crashWindows.filter((window) => faultIn(of, window, 'op1') !== null)
  await inLanes(windows, laneCount, async (window) => {
    outcomes.push(await walkWindow(bed, of, window))
    onScenario()
  })
  return outcomes.sort((a, b) => a.window.localeCompare(b.window))
}

/** One store: the n-th process is killed at the n-th operation, the last one completes. */
async function walkWindow(bed: CrashTestBed, of: WindowClass, window: CrashWindow): Promise<WindowOutcome> {
  const result = await bed.run({
    runs: [{ workflow: `windows-${of}`, id: 'main', threadId: 'ops' }],
    nextFault: (processes) => (processes.length < operationCount ? faultIn(of, window, `op${processes.length + 1}`) : null),
  })
  const log = result.processes.at(-1)?.dump.threads.flatMap((thread) => thread.log) ?? []
  const resolved = log.filter(({ type }) => type === 'effect_resolved')
  const counts = Array.from({ length: operationCount }, (_, index) => actedOn(result, `op${index + 1}`))
  const unsureCount = log.filter(({ type }) => type === 'effect_unsure').length
  const violations = violationsAnywhere(result)
  if (unsureCount !== resolved.length) violations.push(`${unsureCount} became unsure, ${resolved.length} were decided`)
  return {
    ...{ class: of, window },
    killCount: result.processes.filter(({ wasKilled }) => wasKilled).length,
    calls: result.account.calls.length,
    duplicated: counts.filter((count) => count > 1).length,
    missing: counts.filter((count) => count === 0).length,
    unsure: {
      happened: resolved.filter(({ data }) => data['happened'] === true).length,
      not: resolved.filter(({ data }) => data['happened'] === false).length,
    },
    viaCheck: log.filter(({ type, data }) => type === 'effect_completed' && data['via'] === 'check').length,
    violations: violations.map((sentence) => `${of} ${window}: ${sentence}`),
  }
}

function actedOn({ account }: ScenarioResult, name: string): number {
  const keys = new Set(account.calls.filter((call) => call.name === name).map(({ key }) => key))
  return [...keys].reduce((sum, key) => sum + (account.acted.get(key) ?? 0), 0)
}

/** Null where a class has no such window: a plain step writes no intent. */
function faultIn(of: WindowClass, window: CrashWindow, name: string): Fault | null {
  const [intended, completed] =
    of === 'step' ? (['step_started', 'step_completed'] as const) : (['effect_intended', 'effect_completed'] as const)
  switch (window) {
    case 'W0':
      return of === 'step' ? { at: 'body', path: name } : { at: 'write', type: intended, step: name, when: 'before' }
    case 'W1':
      return of === 'step' ? null : { at: 'write', type: intended, step: name, when: 'after' }
    case 'W2':
      return { at: 'call', name, when: 'received' }
    case 'W3':
      return { at: 'answer', name }
    case 'W4':
      return { at: 'write', type: completed, step: name, when: 'before' }
    case 'W5':
      return { at: 'write', type: completed, step: name, when: 'after' }
    case 'W6': {
      const next = Number(name.slice(2)) + 1
      if (next > operationCount) return { at: 'write', type: 'run_completed', step: null, when: 'before' }
      return of === 'step'
        ? { at: 'body', path: `op${next}` }
        : { at: 'write', type: intended, step: `op${next}`, when: 'before' }
    }
  }
}
