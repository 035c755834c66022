import { HoldfastError } from '../../model/errors.ts'
import { nearestNames } from '../../model/known-options.ts'
import { type CallKind, callKey, parseCallKey } from './call-key.ts'
import type { Outcome, Tape } from './tape.ts'

/** A recorded result that a fork has another value for. */
export interface Replacement {
  readonly outcome: Outcome
  readonly kind: CallKind
  readonly value: unknown
  /** Of a section: where it began. */
  readonly begunAt?: number
  /** Of a step of a plan: the value is merged into the state, as what its function returns. */
  readonly isMerged?: boolean
}

/** What is known of the workflow: the names of a plan's steps; undefined where this process does not have it. */
export type PlanSteps = ReadonlySet<string> | undefined

const replaceable: readonly CallKind[] = ['step', 'effect', 'child', 'question', 'signal']

/**
 * The recorded calls that `replace` names: by their path, `gather/fetch`, and which call of it where there are several, `gather/fetch#2`.
 * Where calls of two kinds have the same path the kind says which: `signal:approve`.
 */
export function findReplaced(
  tape: Tape,
  replace: Readonly<Record<string, unknown>>,
  { where, planSteps }: { readonly where: string; readonly planSteps: PlanSteps },
): Replacement[] {
  const names = new Map<Outcome, string>()
  return Object.entries(replace).map(([name, value]) => {
    const exact = tape.outcomes.filter(({ key }) => key === name && replaceable.includes(parseCallKey(key).kind))
    const named = exact.length > 0 ? exact : tape.outcomes.filter(({ key }) => isNamed(key, name))
    const found = named.length > 0 ? named : tape.outcomes.filter(({ key }) => isKey(key, name))
    const [outcome, other] = found
    if (outcome === undefined) throw unknownCall(tape, name, where)
    if (other !== undefined) throw severalCalls(found, name, where)
    const earlier = names.get(outcome)
    if (earlier !== undefined)
      throw refused(`replace names the same call of ${where} twice: "${earlier}" and "${name}". Name it once.`, name)
    names.set(outcome, name)
    const { kind } = parseCallKey(outcome.key)
    if (kind === 'child' && tape.calls.get(outcome.key)?.begun?.seq === outcome.seq)
      throw refused(`replace names "${name}", a detached child of ${where}: what it returned was never recorded.`, name)
    const section = tape.calls.get(outcome.key)?.scope
    const begunAt = tape.calls.get(outcome.key)?.begunAt
    return {
      ...{ outcome, kind, value },
      ...(section !== undefined && begunAt !== undefined && { begunAt }),
      ...(isPlanStep({ section, outcome, planSteps, where }) && { isMerged: true }),
    }
  })
}

interface Recorded {
  readonly section: string | undefined
  readonly outcome: Outcome
  readonly planSteps: PlanSteps
  readonly where: string
}

function isPlanStep({ section, outcome, planSteps, where }: Recorded): boolean {
  const { kind, path } = parseCallKey(outcome.key)
  // One that an earlier fork has replaced is no section any more.
  if (planSteps !== undefined) return kind === 'step' && planSteps.has(path)
  if (section === undefined) return false
  const { payload } = outcome
  // One without a result may be a step of a plan.
  if (payload !== null || section.includes('/')) return false
  throw refused(
    `replace names "${section}", a section or a step of a plan of ${where}, and this process does not have the workflow: register it first, so that it is known which.`,
    section,
  )
}

function isNamed(key: string, name: string): boolean {
  const { kind, path, count } = parseCallKey(key)
  if (!replaceable.includes(kind)) return false
  return name === `${path}#${count}` || (count === 1 && name === path)
}

function isKey(key: string, name: string): boolean {
  const { kind, path, count } = parseCallKey(key)
  return replaceable.includes(kind) && (name === key || (count === 1 && name === callKey(kind, path, 1).slice(0, -2)))
}

function unknownCall(tape: Tape, name: string, where: string): HoldfastError {
  const known = tape.outcomes.flatMap(({ key }) => {
    const { kind, path, count } = parseCallKey(key)
    return replaceable.includes(kind) ? [count === 1 ? path : `${path}#${count}`] : []
  })
  const near = nearestNames(name, known, 5)
  const advice = near.length === 0 ? 'It has none up to there.' : `Near it are ${near.map((one) => `"${one}"`).join(', ')}.`
  return refused(`replace names "${name}", which is no call with a recorded result of ${where}. ${advice}`, name, { near })
}

function severalCalls(named: readonly Outcome[], name: string, where: string): HoldfastError {
  const kinds = named.map(({ key }) => `"${key}"`).join(' or ')
  return refused(`replace names "${name}", and ${where} has several calls of that name. Say which: ${kinds}.`, name)
}

function refused(message: string, name: string, more: object = {}): HoldfastError {
  return new HoldfastError('invalid_input', message, { details: { replace: name, ...more } })
}
