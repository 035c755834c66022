import type { Core } from '../control/core.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'

export interface Resolution {
  readonly happened: boolean
  /** What the effect returned, if it happened. */
  readonly result?: unknown
  /** Who decided. */
  readonly by?: string
}

const resolutionNames: OptionNames<Resolution> = { happened: true, result: true, by: true }

/** A person decides about an unsure effect: it happened (with this result), or it did not and may be sent again. */
export async function resolveEffect(core: Core, owner: string, key: string, resolution: Resolution): Promise<void> {
  if (typeof resolution?.happened !== 'boolean') {
    throw new HoldfastError('invalid_input', 'resolve takes { happened: true or false }; nothing was decided.')
  }
  refuseUnknownOptions('hf.resolve', resolution, resolutionNames)
  const operation = await core.store.readOperation({ owner, key: checkId('operation key', key) })
  if (operation === null) throw new HoldfastError('invalid_input', `There is no effect with key "${key}".`, { details: { key } })
  if (operation.kind === 'question') {
    throw new HoldfastError(
      'invalid_input',
      `"${key}" is a question of run "${operation.runId}", not an effect: answer it with hf.answer("${operation.runId}", "${operation.name}", value, { id }).`,
      { details: { key, runId: operation.runId, question: operation.name } },
    )
  }
  if (operation.status !== 'unsure') throw notUnsure(key, operation.status)
  const { threadId, runId } = operation
  // A run that ended while the effect was in progress left an intent that was not marked as unsure.
  const records = await core.store.readLog({ owner, threadId, runId, types: ['effect_intended', 'effect_unsure'] })
  const doubt = records.findLast(
    (record) => record.payload !== null && (core.codec.decode(record.payload) as { key: string }).key === key,
  )
  const result = resolution.result === undefined ? null : core.codec.encode(resolution.result)
  const by = resolution.by ?? null
  const data = {
    key,
    happened: resolution.happened,
    ...(resolution.result !== undefined && { result: resolution.result }),
    ...(by !== null && { by }),
  }
  await core.waiters.watchesBegun({ owner, runId })
  const answer = await core.committer.commit({
    owner,
    threadId,
    runId,
    guard: { kind: 'none' },
    events:
      doubt === undefined
        ? []
        : [
            {
              type: 'effect_resolved',
              step: doubt.step,
              count: doubt.count,
              attempt: doubt.attempt,
              at: await core.now(),
              durationMs: null,
              payload: core.codec.encode(data),
              patch: null,
            },
          ],
    operation: { kind: 'resolve', key, hasHappened: resolution.happened, result, by },
    isCheckpoint: true,
  })
  if (!answer.ok) throw notUnsure(key, answer.operation?.status ?? answer.refusal)
  core.wakeWorker()
}

function notUnsure(key: string, status: string): HoldfastError {
  return new HoldfastError(
    'already_answered',
    `The effect with key "${key}" is ${status}, not unsure: there is nothing to decide.`,
    {
      details: { key, status },
    },
  )
}
