import { type Codec, fingerprint } from '../../model/codec.ts'
import type { Payload } from '../../model/payload.ts'
import type { NewRun } from '../../store/change.ts'
import type { RunOrigin } from './run-origin.ts'

/** Before the fingerprint of what a caller gave, where the schema of the input has made something else of it. */
const givenMark = 'given:'

/** Names what a run is asked to do: its workflow and an input, as it is or would be recorded. */
export function runFingerprint(codec: Codec, workflow: string, input: unknown): string {
  return recordedFingerprint(codec, workflow, codec.encode(inputData(input)))
}

/**
 * Names what a caller gave for an input that has a schema, before that sees it. Undefined where it can't be stored: then what the schema
 * makes of it counts.
 */
export function givenFingerprint(codec: Codec, workflow: string, given: unknown): string | undefined {
  try {
    return runFingerprint(codec, workflow, given)
  } catch {
    return undefined
  }
}

/**
 * Whether a run with the fingerprint `known` was asked to do the same. Two are the same where their callers gave the same, also where one
 * was started by name in a process without the schema. Runs of earlier versions have the fingerprint of what the schema made of it.
 */
export function isSameStart(known: string, asked: string, checked: () => string): boolean {
  return unmarked(known) === unmarked(asked) || known === checked()
}

/** Of the input that is recorded in the payload of run_queued. */
export function recordedFingerprint(codec: Codec, workflow: string, payload: Payload): string {
  const { input } = codec.decode(payload) as { input?: unknown }
  return fingerprint([workflow, input])
}

/** A run on its way in, with its input read once: what is recorded is what is compared. `given` is what `givenFingerprint` says. */
export function newRun(
  codec: Codec,
  input: unknown,
  origin: RunOrigin,
  made: Omit<NewRun, 'fingerprint' | 'queued'> & { readonly at: number; readonly given?: string | undefined },
): NewRun {
  const { at, given, ...run } = made
  const payload = codec.encode({ ...inputData(input), ...origin })
  const checked = recordedFingerprint(codec, run.workflow, payload)
  return {
    ...run,
    fingerprint: given === undefined || given === checked ? checked : `${givenMark}${given}`,
    queued: { type: 'run_queued', step: null, count: 0, attempt: 0, at, durationMs: null, payload, patch: null },
  }
}

function inputData(input: unknown): { readonly input?: unknown } {
  return input === undefined ? {} : { input }
}

function unmarked(known: string): string {
  return known.startsWith(givenMark) ? known.slice(givenMark.length) : known
}
