import type { RunEvent } from 'holdfast'
import type { CallValue } from './values.ts'

/** What the current tape of a run has on record, without what was taken back since. */
export interface RecordedCalls {
  /** Calls that have come to an end; `value` where the result says which call it is. */
  readonly calls: readonly RecordedCall[]
  /** Sections that were entered. */
  readonly begun: readonly BegunSection[]
}

export interface BegunSection {
  readonly seq: number
  readonly step: string
  /** Of the second one of a name it is another path: `name[2]`. */
  readonly scope: string
}

export interface RecordedCall {
  readonly seq: number
  readonly step: string
  readonly type: RunEvent['type']
  readonly isFailure: boolean
  readonly value?: CallValue
}

export interface RecordedResult extends RecordedCall {
  readonly value: CallValue
}

const results: readonly RunEvent['type'][] = ['step_completed', 'effect_completed', 'effect_skipped', 'effect_resolved']
const others: readonly RunEvent['type'][] = ['child_completed', 'signal_received', 'question_answered']

export function recordedCalls(events: readonly RunEvent[]): RecordedCalls {
  let calls: RecordedCall[] = []
  let begun: BegunSection[] = []
  let intents: { seq: number; key: unknown }[] = []
  let undone: RecordedCall[] = []
  /** Failures of sections that are tried again. */
  let failed: { seq: number; step: string }[] = []
  for (const { type, seq, step, data, error } of events) {
    if (type === 'run_started') [calls, begun, intents, undone, failed] = [[], [], [], [], []]
    else if (type === 'run_rolled_back') {
      const isLeft = (one: { readonly seq: number }) => one.seq <= Number(data?.['to'])
      ;[calls, begun, failed] = [calls.filter(isLeft), begun.filter(isLeft), failed.filter(isLeft)]
      // What was open there begins again.
      intents = []
    } else if (type === 'step_undone') {
      const isIt = (one: RecordedCall) => one.seq === Number(data?.['of'])
      undone.push(...calls.filter(isIt))
      calls = calls.filter((one) => !isIt(one))
    } else if (type === 'step_started' && step !== undefined && typeof data?.['scope'] === 'string') {
      begun.push({ seq, step, scope: data['scope'] })
    } else if (type === 'run_retried') {
      calls = withoutMadeAgain(withoutReopened(calls, data?.['reopened']), undone, begun)
      undone = []
    } else if (type === 'effect_intended') intents.push({ seq, key: data?.['key'] })
    // A decision about an effect of an earlier tape is none of this one.
    else if (type === 'effect_resolved' && !intents.some(({ key }) => key === data?.['key'])) continue
    else if (type === 'step_failed' && data?.['next'] === 'retry') {
      calls = withoutReopened(calls, data['failed'])
      if (step !== undefined && begun.some((section) => section.step === step)) failed.push({ seq, step })
    }
    // A failure that comes after that of the section around it is one that nobody was given: it is tried again with the section.
    else if (type === 'step_failed' && failed.some((one) => step?.startsWith(`${one.step}/`) && isToBegin(one, begun))) continue
    else if (step !== undefined && isEnd(type, data)) {
      const value = data?.['result'] as CallValue | undefined
      const isNamed = results.includes(type) && typeof value?.n === 'string'
      // What a person had decided is the effect's result once the run has come by.
      calls = calls.filter((one) => !(one.type === 'effect_resolved' && one.step === step && type === 'effect_completed'))
      calls.push({ seq, step, type, isFailure: error !== undefined, ...(isNamed && { value }) })
    }
  }
  return { calls, begun }
}

export function resultsOf(events: readonly RunEvent[]): RecordedResult[] {
  return recordedCalls(events).calls.filter(isResult)
}

export function isResult(call: RecordedCall): call is RecordedResult {
  return call.value !== undefined
}

/** Failures that another attempt tries again, by the keys of their calls: with a section, those inside of it. */
function withoutReopened(calls: RecordedCall[], keys: unknown): RecordedCall[] {
  const paths = ((keys ?? []) as string[]).map((key) => key.slice(key.indexOf(':') + 1, key.lastIndexOf('#')))
  return calls.filter(({ step, isFailure }) => !isFailure || !paths.some((path) => step === path || step.startsWith(`${path}/`)))
}

/**
 * What was undone is made again when the run is retried: the sections around it are entered again, and so are the steps inside of a section
 * that was undone as a whole (docs/guides/retries.md).
 */
function withoutMadeAgain(
  calls: RecordedCall[],
  undone: readonly RecordedCall[],
  begun: readonly BegunSection[],
): RecordedCall[] {
  const isInside = (inner: RecordedCall, section: RecordedCall) => {
    const scope = scopeOf(begun, section)
    return scope !== undefined && (inner.step.startsWith(`${scope}/`) || inner.step.startsWith(`${scope}[fallback]/`))
  }
  const isStep = ({ type }: RecordedCall) => type === 'step_completed' || type === 'step_failed'
  return calls.filter((call) => !undone.some((one) => isInside(one, call) || (isStep(call) && isInside(call, one))))
}

/** The path of the section that a result is of: of several with one name the last that was begun before. */
export function scopeOf(begun: readonly BegunSection[], { step, seq }: RecordedCall): string | undefined {
  return begun.findLast((section) => section.step === step && section.seq < seq)?.scope
}

/** The next attempt has not begun. */
function isToBegin(failure: { readonly seq: number; readonly step: string }, begun: readonly BegunSection[]): boolean {
  return !begun.some(({ seq, step }) => step === failure.step && seq > failure.seq)
}

function isEnd(type: RunEvent['type'], data: RunEvent['data']): boolean {
  if (type === 'step_failed') return data?.['next'] === 'throw'
  if (type === 'effect_resolved') return data?.['happened'] === true
  return results.includes(type) || others.includes(type)
}
