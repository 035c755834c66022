import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EventType, type Holdfast, type OpenOptions, open } from 'holdfast'
import { afterEach, describe } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Hint, Store } from '../../src/store/store.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'

/** One store of its own for each test, which any number of clients can open. */
export interface Scene {
  /** Opens a client, and closes it after the test. Every client of a test sees the same store and the same clock. */
  open(options?: OpenOptions): Promise<Holdfast>
  /**
   * Opens a client whose process can be made to look dead: nothing that it does afterwards reaches the store. It dies when
   * told to, or by itself at a write. `dead` resolves then. Its leases run out after 10 s by the store's clock.
   */
  openMortal(options?: OpenOptions, death?: Death): Promise<Mortal>
  /** Opens a client over a store of which `wrap` has changed something. */
  openWrapped(wrap: (store: Store) => Store, options?: OpenOptions): Promise<Holdfast>
  /** Moves the clock of the store. */
  advance(ms: number): void
  /** For other processes. Refused by a store that lives in one process. */
  readonly url: string
  /** A folder of the test's own. */
  readonly folder: string
}

/** The write at which a process dies: right before or after the first one with an event of this type, or before the n-th. */
export type Death = { readonly before: EventType } | { readonly after: EventType } | { readonly beforeWrite: number }

export interface Mortal {
  readonly hf: Holdfast
  readonly die: () => void
  readonly dead: Promise<void>
}

interface Place {
  /** What `open` takes. */
  readonly target: string | Store
  readonly url?: string
  /** A second way into the same store, for wrapping. */
  openStore(): Promise<Store>
}

interface StoreKind {
  readonly name: string
  /** Other processes can open it. */
  readonly isShared: boolean
  readonly hasSql: boolean
  create(folder: string, clockOffsetMs: () => number): Promise<Place>
}

const kinds: readonly StoreKind[] = [
  {
    name: 'memory',
    isShared: false,
    hasSql: false,
    create: async (_folder, clockOffsetMs) => {
      const store = createMemoryStore({ clockOffsetMs })
      return { target: store, openStore: async () => store }
    },
  },
  {
    name: 'sqlite',
    isShared: true,
    hasSql: true,
    create: async (folder, clockOffsetMs) => {
      const file = join(folder, 'holdfast.db')
      const url = `sqlite:${file}`
      return { target: url, url, openStore: () => openSqliteStore({ file, durability: 'full', clockOffsetMs }) }
    },
  },
]

/** Describes a behaviour once and tests it on every store. */
export function onEveryStore(topic: string, tests: (scene: Scene) => void): void {
  for (const kind of kinds) describeOn(kind, topic, tests)
}

/** On the stores that several processes can share. */
export function onEverySharedStore(topic: string, tests: (scene: Scene) => void): void {
  for (const kind of kinds.filter(({ isShared }) => isShared)) describeOn(kind, topic, tests)
}

/** On the stores that can run the user's SQL in the checkpoint's transaction. */
export function onEverySqlStore(topic: string, tests: (scene: Scene) => void): void {
  for (const kind of kinds.filter(({ hasSql }) => hasSql)) describeOn(kind, topic, tests)
}

/** On the stores that can't. */
export function onEveryStoreWithoutSql(topic: string, tests: (scene: Scene) => void): void {
  for (const kind of kinds.filter(({ hasSql }) => !hasSql)) describeOn(kind, topic, tests)
}

function describeOn(kind: StoreKind, topic: string, tests: (scene: Scene) => void): void {
  let offsetMs = 0
  let folder: string | undefined
  let place: Promise<Place> | undefined
  let endings: (() => Promise<void>)[] = []

  const home = () => {
    folder ??= mkdtempSync(join(tmpdir(), 'holdfast-behaviour-'))
    return folder
  }
  const settle = () => {
    place ??= kind.create(home(), () => offsetMs)
    return place
  }
  const openOn = async (target: string | Store, options: OpenOptions) => {
    const hf = await open(target, { clock: () => offsetMs, ...options })
    endings.push(() => hf.close())
    return hf
  }
  const openStore = async () => {
    const { openStore, target } = await settle()
    const store = await openStore()
    if (store !== target) endings.push(() => store.close())
    return store
  }

  const scene: Scene = {
    open: async (options = {}) => openOn((await settle()).target, options),
    openMortal: async (options = {}, death) => {
      const mortal = makeMortal(await openStore(), death)
      const hf = await openOn(mortal.store, { ...options, worker: { closeGraceMs: 0, ...(options.worker || {}) } })
      endings.push(async () => mortal.bury())
      return { hf, die: mortal.die, dead: mortal.dead }
    },
    openWrapped: async (wrap, options = {}) => openOn(wrap(await openStore()), options),
    advance: (ms) => {
      offsetMs += ms
    },
    get url() {
      const file = join(home(), 'holdfast.db')
      if (!kind.isShared) throw new Error(`${kind.name} has no URL for other processes`)
      return `${kind.name}:${file}`
    },
    get folder() {
      return home()
    },
  }

  describe(`${topic}, on ${kind.name}`, () => {
    afterEach(async () => {
      // Last in first out: the dead are buried before they are closed, and stores are closed after their clients.
      for (const end of endings.reverse()) await end()
      endings = []
      if (folder !== undefined) rmSync(folder, { recursive: true, force: true })
      folder = place = undefined
      offsetMs = 0
    })
    tests(scene)
  })
}

/** A store as a process sees it that stops at some instant: calls after its death are not carried out and not answered. */
function makeMortal(store: Store, death?: Death): { store: Store; die: () => void; dead: Promise<void>; bury: () => void } {
  let state: 'alive' | 'dead' | 'buried' = 'alive'
  let tell = () => {}
  const dead = new Promise<void>((resolve) => {
    tell = resolve
  })
  let writes = 0
  const unanswered: ((error: Error) => void)[] = []
  const die = () => {
    if (state === 'alive') state = 'dead'
    tell()
  }
  const silence = () =>
    new Promise<never>((_, reject) => {
      if (state === 'buried') reject(gone())
      else unanswered.push(reject)
    })
  const call = async (carryOut: () => unknown): Promise<unknown> => {
    if (state !== 'alive') return silence()
    const answer = await carryOut()
    return state === 'alive' ? answer : silence()
  }
  const isFatal = (changes: readonly Change[], type: EventType) =>
    changes.some(({ events }) => events.some((event) => event.type === type))
  const commit = (changes: readonly Change[]) =>
    call(async () => {
      writes++
      if (death !== undefined && 'beforeWrite' in death && writes === death.beforeWrite) return die()
      if (death !== undefined && 'before' in death && isFatal(changes, death.before)) return die()
      const answer = await store.commit(changes)
      if (death !== undefined && 'after' in death && isFatal(changes, death.after)) die()
      return answer
    })
  const mortal = new Proxy(store, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown
      if (typeof member !== 'function') return member
      if (name === 'commit') return commit
      if (name === 'subscribe')
        return (listener: (hint: Hint) => void) => target.subscribe?.((hint) => state === 'alive' && listener(hint))
      return (...args: unknown[]) => call(() => member.apply(target, args) as unknown)
    },
  })
  return {
    store: mortal,
    die,
    dead,
    bury: () => {
      die()
      state = 'buried'
      for (const reject of unanswered) reject(gone())
    },
  }
}

function gone(): Error {
  return Object.assign(new Error('this process is dead'), { code: 'closed' })
}
