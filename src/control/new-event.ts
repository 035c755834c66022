import type { EventType, NewEvent } from '../model/event.ts'
import type { Core } from './core.ts'

/** An event that is about no step, at the time of the store. */
export async function newEvent(core: Core, type: EventType, data: Record<string, unknown>): Promise<NewEvent> {
  return {
    type,
    step: null,
    count: 0,
    attempt: 0,
    at: await core.now(),
    durationMs: null,
    payload: Object.keys(data).length === 0 ? null : core.codec.encode(data),
    patch: null,
  }
}
