import type { Fault } from './fault.ts'
import { brokenAnywhere } from './rules.ts'
import { inLanes, type PlayedScene, type Stage } from './stage.ts'
import { type EffectClass, effectClasses, operationCount } from './workflows.ts'

/** The crash windows of failure-model 2.3. A result and its checkpoint are one commit here, so W5 is `result durable, no answer`. */
export const crashWindows = ['W0', 'W1', 'W2', 'W3', 'W4', 'W5', 'W6'] as const
export type CrashWindow = (typeof crashWindows)[number]

/** `step`: the provider is called from a plain step, which promises no more than at least once. */
export type WindowClass = EffectClass | 'step'
export const windowClasses: readonly WindowClass[] = ['step', ...effectClasses]

/** What came of the five operations of a class that were killed in one window, all counted at the provider and in the log. */
export interface WindowOutcome {
  readonly class: WindowClass
  readonly window: CrashWindow
  readonly kills: number
  readonly calls: number
  /** Operations that happened more than once. */
  readonly duplicated: number
  readonly missing: number
  /** Operations that became unsure, and what the provider then said of them. */
  readonly unsure: { readonly happened: number; readonly not: number }
  readonly viaCheck: number
  readonly broken: readonly string[]
}

/** Kills every operation of a class in every window, and counts. */
export async function walkWindows(
  stage: Stage,
  of: WindowClass,
  { laneCount = 2, onScene = () => {} } = {},
): Promise<WindowOutcome[]> {
  const outcomes: WindowOutcome[] = []
  const windows = crashWindows.filter((window) => faultIn(of, window, 'op1') !== null)
  await inLanes(windows, laneCount, async (window) => {
    outcomes.push(await walkWindow(stage, of, window))
    onScene()
  })
  return outcomes.sort((a, b) => a.window.localeCompare(b.window))
}

/** One store: the n-th life is killed at the n-th operation, the last one comes to the end. */
async function walkWindow(stage: Stage, of: WindowClass, window: CrashWindow): Promise<WindowOutcome> {
  const scene = await stage.play({
    runs: [{ workflow: `windows-${of}`, id: 'main', threadId: 'ops' }],
    nextFault: (lives) => (lives.length < operationCount ? faultIn(of, window, `op${lives.length + 1}`) : null),
  })
  const log = scene.lives.at(-1)?.dump.threads.flatMap((thread) => thread.log) ?? []
  const resolved = log.filter(({ type }) => type === 'effect_resolved')
  const counts = Array.from({ length: operationCount }, (_, index) => actedOn(scene, `op${index + 1}`))
  const unsureCount = log.filter(({ type }) => type === 'effect_unsure').length
  const broken = brokenAnywhere(scene)
  if (unsureCount !== resolved.length) broken.push(`${unsureCount} became unsure, ${resolved.length} were decided`)
  return {
    ...{ class: of, window },
    kills: scene.lives.filter(({ wasKilled }) => wasKilled).length,
    calls: scene.account.calls.length,
    duplicated: counts.filter((count) => count > 1).length,
    missing: counts.filter((count) => count === 0).length,
    unsure: {
      happened: resolved.filter(({ data }) => data['happened'] === true).length,
      not: resolved.filter(({ data }) => data['happened'] === false).length,
    },
    viaCheck: log.filter(({ type, data }) => type === 'effect_completed' && data['via'] === 'check').length,
    broken: broken.map((sentence) => `${of} ${window}: ${sentence}`),
  }
}

function actedOn({ account }: PlayedScene, name: string): number {
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
