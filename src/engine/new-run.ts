import { type Codec, fingerprint } from '../model/codec.ts'
import type { NewRun } from '../store/change.ts'
import type { RunOrigin } from './origin.ts'

/** Names what a run is asked to do: its workflow and its input, as they are recorded. */
export function runFingerprint(workflow: string, recordedInput: unknown): string {
  return fingerprint([workflow, recordedInput])
}

/** A run on its way in, with its input read once: what is recorded is what is compared. */
export function newRun(
  codec: Codec,
  input: unknown,
  origin: RunOrigin,
  made: Omit<NewRun, 'fingerprint' | 'queued'> & { readonly at: number },
): NewRun {
  const { at, ...run } = made
  const payload = codec.encode({ ...(input !== undefined && { input }), ...origin })
  const { input: recorded } = codec.decode(payload) as { input?: unknown }
  return {
    ...run,
    fingerprint: runFingerprint(run.workflow, recorded),
    queued: { type: 'run_queued', step: null, count: 0, attempt: 0, at, durationMs: null, payload, patch: null },
  }
}
