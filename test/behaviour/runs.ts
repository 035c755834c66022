import { type EventType, HoldfastError, type RunHandle, type RunStatus } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { vi } from 'vitest'
import type { Store } from '../../src/store/store.ts'

/** The types of a run's events, in order; of one kind (`step`, `effect`) if asked. */
export async function eventTypes(run: RunHandle, kind?: string): Promise<EventType[]> {
  const events = await run.events()
  return events.map(({ type }) => type).filter((type) => kind === undefined || type.startsWith(`${kind}_`))
}

/** Waits until the run has this status. A run that begins to wait says nothing in its log, so this looks. */
export async function becomes(run: RunHandle, status: RunStatus): Promise<void> {
  await vi.waitUntil(async () => (await run.info()).status === status, { timeout: 15_000, interval: 5 })
}

/** Waits until the run's log has an event of this type, be it from before. */
export async function logged(run: RunHandle, type: EventType): Promise<void> {
  await vi.waitUntil(async () => (await eventTypes(run)).includes(type), { timeout: 15_000, interval: 5 })
}

/** A promise and what settles it. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open: (value: T) => void = () => {}
  const promise = new Promise<T>((resolve) => {
    open = resolve
  })
  return { promise, open }
}

/** The code of the error that a promise is rejected with. */
export async function codeOfRejection(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => 'nothing was thrown',
    (error: { code?: unknown }) => error.code ?? error,
  )
}

/** The error with which a run failed. */
export async function failureOf(run: RunHandle): Promise<Error & { code?: string }> {
  return run.result().then(
    () => {
      throw new Error(`run ${run.id} did not fail`)
    },
    (error: Error) => (error.cause ?? error) as Error & { code?: string },
  )
}

/** For `openWrapped`: the store is out of reach for calls of an act, the first `times` that are meant. */
export function failing(
  act: StoreAct,
  { times, isMeant = () => true }: { times: number; isMeant?: (query: Record<string, unknown>) => boolean },
): (store: Store) => Store {
  let left = times
  const before = (name: StoreAct, _nth: number, [query]: readonly unknown[]) => {
    if (name !== act || left === 0 || !isMeant(query as Record<string, unknown>)) return
    left--
    throw new HoldfastError('store_unavailable', 'The store is out of reach for a moment.')
  }
  return (store) => wrapStore(store, { before })
}

/** For `openWrapped`: tells when an act of the client has been done. */
export function noting(act: StoreAct, done: () => void): (store: Store) => Store {
  return (store) => wrapStore(store, { after: (name) => name === act && done() })
}
