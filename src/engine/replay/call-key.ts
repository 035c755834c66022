import type { LogRecord } from '../../model/event.ts'

/** `step:gather/fetch#2`: kind, path and count of a call. */
export type CallKey = string
/** `gather#2`: the scope of an update, and which of its updates it is. */
export type UpdateKey = string
export type CallKind = 'step' | 'effect' | 'timer' | 'value' | 'signal' | 'question' | 'child'

export function callKey(kind: CallKind, path: string, count: number): CallKey {
  return `${kind}:${path}#${count}`
}

/** The key of the call that a record is about. */
export function keyOfRecord(kind: CallKind, { step, count }: Pick<LogRecord, 'step' | 'count'>): CallKey {
  return callKey(kind, step ?? '', count)
}

export function parseCallKey(key: CallKey): { kind: CallKind; path: string; count: number } {
  return { kind: kindOf(key), path: pathOf(key), count: Number(key.slice(key.lastIndexOf('#') + 1)) }
}

export function kindOf(key: CallKey): CallKind {
  return key.slice(0, key.indexOf(':')) as CallKind
}

/** `gather/fetch` of `step:gather/fetch#2`. */
export function pathOf(key: CallKey): string
export function pathOf(key: CallKey | undefined): string | undefined
export function pathOf(key: CallKey | undefined): string | undefined {
  return key?.slice(key.indexOf(':') + 1, key.lastIndexOf('#'))
}

/** `fetch` of `gather/fetch`: the name of a call without its scopes. */
export function lastPartOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

export function updateKey(scope: string | null, count: number): UpdateKey {
  return `${scope ?? ''}#${count}`
}

/** The scope of an update; empty for one that the function of the run made outside of any. */
export function scopeOfUpdate(key: UpdateKey): string {
  return key.slice(0, key.lastIndexOf('#'))
}
