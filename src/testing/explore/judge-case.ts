import { inspect, isDeepStrictEqual } from 'node:util'
import { differences, valueAt, withNamedValues } from './differences.ts'
import type { Observation, ObservedCall } from './play-case.ts'

/** What can be wrong with a case. */
export type Check =
  /** It ends otherwise than undisturbed, or not at all. */
  | 'end'
  /** The function takes another way when it is replayed. */
  | 'replay'
  | 'output'
  | 'state'
  /** What `compare` gives. */
  | 'compare'
  | 'usage'
  /** A step whose result is on record was executed again. */
  | 'step'
  /** An effect acted twice, or is on record without having been sent. */
  | 'effect'
  | 'invariant'

export interface Finding {
  readonly check: Check
  readonly message: string
}

/** What every case has to come to: how the undisturbed run ended, apart from what differs between two of them. */
export interface Expected {
  readonly ending: Ending
  readonly ignored: ReadonlySet<string>
}

export interface Ending {
  readonly status: string
  readonly error?: string
  readonly output: unknown
  readonly state: unknown
  readonly compared: unknown
  readonly usage: { readonly steps: number; readonly tokens: number; readonly cost: number }
}

type Compare = ((seen: { world: never; output: never; state: never }) => unknown) | undefined

export async function endingOf(seen: Observation, compare: Compare): Promise<Ending> {
  const { run, state, events, world } = seen
  const { inputTokens, outputTokens, cost, steps } = run.usage
  const named = (value: unknown) => withNamedValues(value, events)
  const given = { world, output: run.output, state } as { world: never; output: never; state: never }
  return {
    status: `${run.status}${run.reason === undefined ? '' : ` (${run.reason})`}`,
    ...(run.error !== undefined && { error: String(named(run.error.message)) }),
    output: named(run.output),
    state: named(state),
    compared: compare === undefined ? undefined : copyOf(named(await compare(given))),
    usage: { steps, tokens: inputTokens + outputTokens, cost },
  }
}

/** The world may go on after its case. */
function copyOf(value: unknown): unknown {
  try {
    return structuredClone(value)
  } catch {
    return value
  }
}

/** Everything that two undisturbed runs do not have in common can't be asked of the others. */
export function expectationOf(a: Ending, b: Ending): Expected {
  return { ending: a, ignored: new Set(differences(a, b)) }
}

export function judgeCase(seen: Observation, ending: Ending, expected: Expected): Finding[] {
  const end = judgeEnd(seen, ending, expected)
  return [...end, ...judgeSteps(seen), ...judgeEffects(seen), ...(end.length > 0 ? [] : judgeValues(seen, ending, expected))]
}

function judgeEnd({ run, hang, undecided }: Observation, ending: Ending, { ending: expected, ignored }: Expected): Finding[] {
  if (run.status === 'paused' && run.reason === 'mismatch')
    return [{ check: 'replay', message: run.error?.message ?? 'The function does not match its log.' }]
  if (hang !== undefined) return [{ check: 'end', message: `The case was given up: ${hang}` }]
  // Left to a person, as declared: whoever wants to see further decides with `unsure`.
  if (undecided.length > 0 && run.status === 'waiting') return []
  const isSameError = ending.error === expected.error || ignored.has('$.error')
  if (ending.status === expected.status && isSameError) return []
  const how = (one: Ending) => `${one.status}${one.error === undefined ? '' : `: ${one.error}`}`
  return [{ check: 'end', message: `The run ended as ${how(ending)}; undisturbed it is ${how(expected)}` }]
}

function judgeSteps({ calls }: Observation): Finding[] {
  const again = calls.filter(({ isRecorded }) => isRecorded)
  return again.map(({ path, count }) => ({
    check: 'step',
    message: `Step "${path}" (call ${count}) was executed although its result was on record`,
  }))
}

function judgeEffects({ calls, events }: Observation): Finding[] {
  const findings: Finding[] = []
  const runs = Map.groupBy(
    calls.filter(({ kind }) => kind === 'effect'),
    ({ key }) => key,
  )
  // The key of an effect that was undone, or that a person said did not happen, is free again.
  const isFreed = (key: string, path: string) =>
    events.some(
      ({ type, step, data }) =>
        (type === 'effect_resolved' && data?.['key'] === key && data['happened'] === false) ||
        (type === 'step_undone' && step === path),
    )
  for (const [key, sent] of runs) {
    const [first, second] = sent.flatMap((note) =>
      note.end !== undefined && 'value' in note.end ? { note, value: note.end.value } : [],
    )
    if (first === undefined || second === undefined) continue
    const { path, declares } = first.note
    if (isFreed(key, path)) continue
    if (declares !== 'idempotent')
      findings.push({ check: 'effect', message: `Effect "${path}" acted twice under key "${key}"${lied(calls, key)}` })
    else if (!isDeepStrictEqual(first.value, second.value))
      findings.push({
        check: 'effect',
        message: `Effect "${path}" is declared idempotent, and gave something else when it was sent again under key "${key}"`,
      })
  }
  for (const { type, step, data } of events) {
    const key = String(data?.['key'])
    if (type === 'effect_completed' && data?.['via'] === 'check' && !runs.has(key))
      findings.push({ check: 'effect', message: `The check of effect "${step}" said that it had happened; it was never sent` })
  }
  return findings
}

function lied(calls: readonly ObservedCall[], key: string): string {
  const denied = calls.some(
    ({ kind, key: of, end }) =>
      kind === 'check' &&
      of === key &&
      end !== undefined &&
      'value' in end &&
      (end.value as { happened?: boolean })?.happened === false,
  )
  return denied ? ': its check said that it had not happened' : ''
}

function judgeValues({ events, undecided }: Observation, ending: Ending, { ending: expected, ignored }: Expected): Finding[] {
  if (undecided.length > 0) return []
  const findings: Finding[] = []
  for (const [check, field] of [
    ['output', 'output'],
    ['state', 'state'],
    ['compare', 'compared'],
  ] as const) {
    const isIgnored = (path: string) =>
      [...ignored].some((one) => path === one || path.startsWith(`${one}.`) || path.startsWith(`${one}[`))
    const [path] = differences(ending[field], expected[field], `$.${field}`).filter((one) => !isIgnored(one))
    if (path === undefined) continue
    const inside = `$${path.slice(field.length + 2)}`
    const is = shown(valueAt(ending[field], inside))
    const was = shown(valueAt(expected[field], inside))
    findings.push({ check, message: `${names[check]} differs at ${inside}: ${is}; undisturbed it is ${was}` })
  }
  const { steps, tokens, cost } = ending.usage
  const spent = expected.usage
  // A step that had booked when it was cut short is executed again: that was spent twice.
  const mayBeMore = hasBookedTwice(events)
  const isWrong = (is: number, was: number) => is < was || (is > was && !mayBeMore)
  const isOtherCount = steps !== spent.steps && !ignored.has('$.usage.steps')
  if (isOtherCount || isWrong(tokens, spent.tokens) || isWrong(cost, spent.cost))
    findings.push({
      check: 'usage',
      message: `Counted were ${steps} steps, ${tokens} tokens, cost ${cost}; undisturbed ${spent.steps}, ${spent.tokens}, ${spent.cost}`,
    })
  return findings
}

const names = { output: 'The output', state: 'The state', compare: 'What is compared' } as const

function hasBookedTwice(events: Observation['events']): boolean {
  const booked = new Set<string>()
  for (const { type, step, attempt } of events) {
    if (type !== 'usage_recorded' || step === undefined) continue
    const of = `${step} ${attempt}`
    if (booked.has(of)) return true
    booked.add(of)
  }
  return false
}

function shown(value: unknown): string {
  const text = inspect(value, { breakLength: Number.POSITIVE_INFINITY, depth: 4 })
  return text.length > 80 ? `${text.slice(0, 79)}…` : text
}
