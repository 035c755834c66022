import type { Codec } from '../../model/codec.ts'
import type { NewMessage } from '../../store/store.ts'
import type { HeldRun } from '../execution/held-run.ts'
import { lastPartOf } from '../replay/call-key.ts'

/** What signal_received says, besides how the signal was put. */
interface SignalData {
  readonly name?: string
  readonly result?: unknown
  readonly sentAt?: number
  /** It was taken before, and did not match its schema then. */
  readonly isAgain?: true
}

/**
 * The signals that a run took after a position: a rollback puts them back into its inbox, each with when it was sent, since others may have
 * come meanwhile. Those that an earlier rollback went over are there already.
 */
export async function readTakenSignals({ store, codec, claim }: HeldRun, afterSeq: number): Promise<NewMessage[]> {
  const { owner, threadId, id: runId } = claim.run
  const types = ['signal_received', 'run_rolled_back'] as const
  const records = await store.readLog({ owner, threadId, runId, afterSeq, types })
  const read = <T>(payload: (typeof records)[number]['payload']) => (payload === null ? {} : codec.decode(payload)) as T
  const gaps = records
    .filter(({ type }) => type === 'run_rolled_back')
    .map(({ seq, payload }) => ({ from: read<{ to: number }>(payload).to, to: seq }))
  return records.flatMap(({ type, seq, step, payload }) => {
    if (type !== 'signal_received' || gaps.some(({ from, to }) => seq > from && seq < to)) return []
    const { name = lastPartOf(step ?? ''), result, isAgain, ...rest } = read<SignalData>(payload)
    if (isAgain === true) return []
    const sent = { ...rest, ...(result !== undefined && { value: result }) }
    const isBare = Object.keys(sent).length === 0
    return [{ owner, runId, kind: 'signal', name, payload: isBare ? null : codec.encode(sent) } as const]
  })
}

/** When a signal was sent that a rollback has put back; undefined for others. */
export function putBackFrom(codec: Codec, { kind, payload }: NewMessage): number | undefined {
  return kind === 'signal' && payload !== null ? (codec.decode(payload) as SignalData).sentAt : undefined
}
