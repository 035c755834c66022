import type { EventType } from 'holdfast'
import type { Change } from '../../src/store/change.ts'
import type { Hint, Store } from '../../src/store/store.ts'

/** The write at which a process dies: right before or after the first one with an event of this type, or before the n-th. */
export type Death = { readonly before: EventType } | { readonly after: EventType } | { readonly beforeWrite: number }

export interface MortalStore {
  readonly store: Store
  /** Resolves like `dead`: a clock that is moved before that would let a claim or a renewal of the dead take effect after its death. */
  readonly die: () => Promise<void>
  /** Resolves when it is dead and nothing that it sent is under way any more. */
  readonly dead: Promise<void>
  /** Whoever still waits for an answer is refused. */
  readonly bury: () => void
}

/**
 * A store as a process sees it that stops at some instant: calls after its death are not carried out and not answered.
 *
 * A process that dies after a write sends nothing from when it has sent that write, and hears nothing: others see what it wrote before its
 * answer arrives, and so would its own worker, which would begin what the next process is to do.
 */
export function makeMortal(store: Store, death?: Death): MortalStore {
  let state: 'alive' | 'dead' | 'buried' = 'alive'
  let tell = () => {}
  const dead = new Promise<void>((resolve) => {
    tell = resolve
  })
  let writes = 0
  /** The write after which it is dead, while it is under way. */
  let lastWrite: Promise<unknown> | undefined
  const underWay = new Set<Promise<unknown>>()
  const unanswered: ((error: Error) => void)[] = []
  const die = () => {
    if (state === 'alive') {
      state = 'dead'
      void Promise.allSettled(underWay).then(tell)
    }
    return dead
  }
  const silence = () =>
    new Promise<never>((_, reject) => {
      if (state === 'buried') reject(gone())
      else unanswered.push(reject)
    })
  /** It lives on if that write fails. */
  const untilLastWrite = async () => {
    while (lastWrite !== undefined) await lastWrite.catch(() => {})
  }
  const call = async (send: () => unknown, { canHang = false } = {}): Promise<unknown> => {
    if (lastWrite !== undefined) await untilLastWrite()
    if (state !== 'alive') return silence()
    const answered = Promise.resolve(send())
    if (!canHang) track(answered)
    const outcome = await settled(answered)
    if (lastWrite !== undefined) await untilLastWrite()
    return state === 'alive' ? outcome() : silence()
  }
  const track = (answered: Promise<unknown>) => {
    underWay.add(answered)
    const end = () => underWay.delete(answered)
    answered.then(end, end)
  }
  const isFatal = (changes: readonly Change[], type: EventType) =>
    changes.some(({ events }) => events.some((event) => event.type === type))
  const commit = async (changes: readonly Change[]) => {
    if (lastWrite !== undefined) await untilLastWrite()
    if (state !== 'alive') return silence()
    writes++
    const isBefore =
      death !== undefined &&
      (('beforeWrite' in death && writes === death.beforeWrite) || ('before' in death && isFatal(changes, death.before)))
    if (isBefore) {
      void die()
      return silence()
    }
    if (death === undefined || !('after' in death) || !isFatal(changes, death.after)) return call(() => store.commit(changes))
    const write = store.commit(changes)
    track(write)
    lastWrite = write
    try {
      await write
      void die()
    } finally {
      lastWrite = undefined
    }
    return silence()
  }
  const mortal = new Proxy(store, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown
      if (typeof member !== 'function') return member
      if (name === 'commit') return commit
      if (name === 'subscribe')
        return (listener: (hint: Hint) => void) => target.subscribe?.((hint) => state === 'alive' && listener(hint))
      // A transaction lasts as long as the function inside of it, which may wait for what comes after this death.
      const canHang = name === 'transact'
      return (...args: unknown[]) => call(() => member.apply(target, args) as unknown, { canHang })
    },
  })
  return {
    store: mortal,
    die,
    dead,
    bury: () => {
      void die()
      state = 'buried'
      for (const reject of unanswered) reject(gone())
    },
  }
}

/** A promise that never rejects: what it resolves with answers or throws as the given one did. */
function settled<T>(promise: Promise<T>): Promise<() => T> {
  return promise.then(
    (answer) => () => answer,
    (error: unknown) => () => {
      throw error
    },
  )
}

function gone(): Error {
  return Object.assign(new Error('this process is dead'), { code: 'closed' })
}
