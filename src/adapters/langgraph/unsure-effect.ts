import { createHash } from 'node:crypto'
import { GraphInterrupt } from '@langchain/langgraph'

/**
 * The value of an interrupt that stands for an effect whose outcome nobody knows: its process died, or it threw. A person finds out, and
 * `saver.resolve(key, { happened, result? })` records it; then `graph.invoke(null, config)` continues.
 */
export interface UnsureGraphEffect {
  readonly type: 'effect_unsure'
  /** The name of the effect or tool. */
  readonly effect: string
  readonly key: string
  readonly message: string
}

export function unsureInterrupt(effect: string, key: string, cause?: unknown): GraphInterrupt {
  const message =
    `It is not known whether effect ${JSON.stringify(effect)} happened: ` +
    (cause === undefined ? 'its process died, or was silent for too long. ' : `it threw ${String(cause)}. `) +
    'Find out, call saver.resolve(key, { happened, result }), then graph.invoke(null, config).'
  const value: UnsureGraphEffect = { type: 'effect_unsure', effect, key, message }
  return new GraphInterrupt([{ id: interruptIdOf(key), value }])
}

/** The key of the unsure effect that an interrupt stands for; undefined for all others. */
export function unsureKeyOf({ id, value }: { readonly id?: unknown; readonly value?: unknown }): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { type, key } = value as { readonly type?: unknown; readonly key?: unknown }
  return type === 'effect_unsure' && typeof key === 'string' && id === interruptIdOf(key) ? key : undefined
}

function interruptIdOf(key: string): string {
  return createHash('sha256').update(`effect\n${key}`).digest('hex').slice(0, 32)
}
