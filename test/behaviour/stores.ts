import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, type OpenOptions, open } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { afterEach, beforeEach, describe } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { type Death, makeMortal } from './mortal-store.ts'
import { type Place, type StoreKind, storeKinds } from './places.ts'

/** One store of its own for each test, which any number of clients can open. */
export interface Scene {
  /** Opens a client, and closes it after the test. Every client of a test sees the same store and the same clock. */
  open(options?: OpenOptions): Promise<Holdfast>
  /**
   * Opens a client whose process can be made to look dead: nothing that it does afterwards reaches the store. It dies when
   * told to, or by itself at a write, and does nothing else from when that write is sent. `dead` resolves when all that it had sent is
   * carried out. Its leases run out after 10 s by the store's clock.
   */
  openMortal(options?: OpenOptions, death?: Death): Promise<Mortal>
  /** Opens a client over a store of which `wrap` has changed something. */
  openWrapped(wrap: (store: Store) => Store, options?: OpenOptions): Promise<Holdfast>
  /** Moves the clock of the store. */
  advance(ms: number): void
  /**
   * After the kill of a process: where the store does not see that it is dead, lets its leases run out. Says why its runs can
   * be taken over now.
   */
  outlastKilled(): 'holder_died' | 'lease_expired'
  /** For other processes. Refused by a store that lives in one process. */
  readonly url: string
  /** The user's own SQL in the same database, from outside of Holdfast. */
  sql(text: string): Promise<Record<string, unknown>[]>
  /** How that database writes the n-th parameter of a statement. */
  parameter(n: number): string
  /** Takes away what an earlier test left set up in the place, for tests of setting up. */
  clear(): Promise<void>
  /** An image of all that the store has now. What is returned puts it back, under whoever is at work: the store has forgotten what came since. */
  takeImage(): () => void
  /** A folder of the test's own. */
  readonly folder: string
}

/** How long a run is quiet in tests before it is persisted as waiting, unless the test says something else. */
const quietMs = 20

/** For looking for races, in tests or in the product: calls of the store take up to so many ms longer, at random. */
const jitterMs = Number(process.env['HOLDFAST_TEST_JITTER_MS'] ?? 0)

/** Commits arrive in the order in which they were sent: stores may rely on that. Notifications arrive in any order. */
function makeJittery(store: Store): Store {
  const dawdle = () => (Math.random() < 0.5 ? undefined : sleep(Math.random() ** 2 * jitterMs))
  let lastCommit: Promise<unknown> = Promise.resolve()
  const inOrder = () => {
    lastCommit = lastCommit.then(dawdle)
    return lastCommit
  }
  const jittery = wrapStore(store, { before: (act) => (act === 'commit' ? inOrder() : dawdle()), after: dawdle })
  const { subscribe } = jittery
  if (subscribe === undefined) return jittery
  return {
    ...jittery,
    subscribe: (listener) =>
      subscribe(async (hint) => {
        await dawdle()
        listener(hint)
      }),
  }
}

export interface Mortal {
  readonly hf: Holdfast
  /** Resolves when nothing that it had sent is under way any more. */
  readonly die: () => Promise<void>
  readonly dead: Promise<void>
}

/** Describes a behaviour once and tests it on every store. */
export function onEveryStore(topic: string, tests: (scene: Scene) => void): void {
  describeOn(() => true, topic, tests)
}

/**
 * On memory and SQLite: what the engine decides by itself, by means of a store that the store suite and the tests on every store have
 * tried on all of them.
 */
export function onLocalStores(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ isLocal }) => isLocal === true, topic, tests)
}

/** On the stores that several processes can share. */
export function onEverySharedStore(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ isShared }) => isShared, topic, tests)
}

/** On the stores that can run the user's SQL in the checkpoint's transaction. */
export function onEverySqlStore(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ parameter }) => parameter !== undefined, topic, tests)
}

/** On the stores that can't. */
export function onEveryStoreWithoutSql(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ parameter }) => parameter === undefined, topic, tests)
}

/** On the stores that are reached over a network. */
export function onEveryRemoteStore(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ isShared, seesDeaths }) => isShared && seesDeaths !== true, topic, tests)
}

/** On SQLite alone: about the file. */
export function onSqlite(topic: string, tests: (scene: Scene) => void): void {
  describeOn(({ name }) => name === 'sqlite', topic, tests)
}

function describeOn(isMeant: (kind: StoreKind) => boolean, topic: string, tests: (scene: Scene) => void): void {
  for (const kind of storeKinds) if (isMeant(kind)) describe(`${topic}, on ${kind.name}`, () => tests(createScene(kind)))
}

/** A scene that is set before each test of the suite and cleared after it. */
function createScene(kind: StoreKind): Scene {
  let offsetMs = 0
  let folder: string
  let place: Place
  let endings: (() => Promise<void>)[] = []

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-behaviour-'))
    place = await kind.create(folder, () => offsetMs)
  })
  afterEach(async () => {
    // Last in first out: the dead are buried before they are closed, and stores are closed after their clients.
    for (const end of endings.reverse()) await end()
    endings = []
    await place.leave?.()
    rmSync(folder, { recursive: true, force: true })
    offsetMs = 0
  })

  const openOn = async (target: string | Store, options: OpenOptions) => {
    const worker = options.worker === false ? false : { quietMs, ...options.worker }
    const hf = await open(target, { clock: () => offsetMs, logger: false, ...options, worker })
    endings.push(() => hf.close())
    return hf
  }
  const openStore = async () => {
    const store = await place.openStore()
    if (store !== place.target) endings.push(() => store.close())
    return store
  }
  const openJittery = async () => (jitterMs > 0 ? makeJittery(await openStore()) : openStore())
  const has = <T>(member: T | undefined, what: string): T => {
    if (member === undefined) throw new Error(`${kind.name} has no ${what}`)
    return member
  }

  return {
    open: async (options = {}) =>
      openOn(place.sharesConnections === true || jitterMs > 0 ? await openJittery() : place.target, options),
    openMortal: async (options = {}, death) => {
      const mortal = makeMortal(await openJittery(), death)
      const hf = await openOn(mortal.store, { ...options, worker: { closeGraceMs: 0, ...(options.worker || {}) } })
      endings.push(async () => mortal.bury())
      return { hf, die: mortal.die, dead: mortal.dead }
    },
    openWrapped: async (wrap, options = {}) => openOn(wrap(await openJittery()), options),
    advance: (ms) => {
      offsetMs += ms
    },
    outlastKilled: () => {
      if (kind.seesDeaths === true) return 'holder_died'
      offsetMs += 11_000
      return 'lease_expired'
    },
    get url() {
      return has(place.url, 'URL for other processes')
    },
    sql: (text) => has(place.sql, 'SQL')(text),
    parameter: (n) => has(kind.parameter, 'SQL')(n),
    clear: async () => place.clear?.(),
    takeImage: () => has(place.takeImage, 'images')(),
    get folder() {
      return folder
    },
  }
}
