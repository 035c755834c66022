import { eventTypes, type NewEvent } from '../model/event.ts'
import type { Payload } from '../model/payload.ts'
import type { NewChunks } from '../model/stream.ts'
import type { Change, Due, NewRun, OperationChange, RecordChange } from '../store/change.ts'
import type { NewMessage, RunKey } from '../store/store.ts'
import { maybe, type Random } from './random.ts'

export const owners = ['', 'ann', 'x:y']
export const queues = ['default', 'slow']
export const workflows = ['chat', 'report']
export const labels = ['start', 'good', "it's", '%']
export const collections = ['notes', 'notes:1', '*']
export const recordKeys = ['k', 'k/1', 'k/10', "k'", '%', '_', 'é', '__proto__', '\u{ffff}', '\u{1f600}']
export const fieldValues = ['x', 'x:y', '%', "'"]
export const streams = ['tokens', 'tokens:1', 'é', '__proto__']

/** Names and contents to make changes from; names that were used come again. */
export class RandomValues {
  readonly names = {
    owners: new Set(owners),
    threadIds: new Set(['t', 't/1', 't/10', '__proto__', '*']),
    runIds: new Set<string>(),
    operationKeys: new Set(['k', 'k:1', 'k:10', '%', "k'", 'é']),
  }
  readonly runKeys: RunKey[] = []
  readonly clock: { now(): number }
  private readonly random: Random
  private lastNumber = 0
  private readonly instants = new Set<number>()

  constructor(random: Random, clock: { now(): number }) {
    this.random = random
    this.clock = clock
  }

  newRun(owner: string): NewRun {
    const { random } = this
    const isAgain = random.chance(0.1) && this.names.runIds.size > 0
    const id = isAgain ? random.pick([...this.names.runIds]) : `r${++this.lastNumber}`
    const threadId = random.chance(0.25) ? id : this.threadId()
    this.names.runIds.add(id)
    this.names.threadIds.add(threadId)
    this.runKeys.push({ owner, runId: id })
    return {
      ...{ owner, id, threadId, workflow: random.pick(workflows), version: random.integer(1, 2), queue: random.pick(queues) },
      ...{ priority: random.pick([0, 0, 0, 1, -1, 5]), fingerprint: `f${random.integer(1, 9)}`, due: this.due() },
      ...{
        ifBusy: random.chance(0.25) ? 'reject' : 'queue',
        queued: { ...this.event(), type: 'run_queued', payload: this.payload() },
      },
    }
  }

  operation(kind: OperationChange['kind'], key: string): OperationChange {
    const { random } = this
    switch (kind) {
      case 'intend':
      case 'ask':
        return { kind, key, name: random.pick(['send', 'charge']) }
      case 'complete':
        return { kind, key, result: random.chance(0.2) ? null : this.payload() }
      case 'fail':
      case 'doubt':
      case 'undo':
        return { kind, key }
      case 'resolve':
        return { kind, key, hasHappened: random.chance(0.5), result: this.payload(), by: random.pick([null, 'ann']) }
      case 'note':
        return { kind, key, evidence: this.payload() }
    }
  }

  /** Different ones. */
  recordPlaces(count: number): { collection: string; key: string }[] {
    const { random } = this
    const places = Array.from({ length: count }, () => ({ collection: random.pick(collections), key: random.pick(recordKeys) }))
    return [...new Map(places.map((place) => [JSON.stringify(place), place])).values()]
  }

  recordChange(place: { readonly collection: string; readonly key: string }, version: number | undefined): RecordChange {
    const { random } = this
    const ifVersion = maybe(version !== undefined, { ifVersion: version as number })
    const kind = random.pick(['put', 'put', 'put', 'delete', 'touch', 'restore'] as const)
    if (kind === 'delete') return { kind, ...place, ...ifVersion }
    if (kind === 'touch')
      return { kind, ...place, expires: this.expiry(), ...maybe(version !== undefined, { ofVersion: version as number }) }
    const content = {
      ...place,
      parent: random.pick([null, 'p', 'p:1', '%']),
      threadId: random.chance(0.3) ? this.threadId() : null,
      fields: Array.from({ length: random.integer(0, 2) }, () => ({
        name: random.pick(['tag', 'a']),
        value: random.pick(fieldValues),
      })),
      payload: this.payload(),
    }
    if (kind === 'put') return { kind, ...content, expires: this.expiry(), ...ifVersion }
    const expiresAt = random.pick([null, this.clock.now() + random.integer(-20, 60) * 10_000 + 5_000])
    return { kind, record: { ...content, version: random.integer(1, 9), createdAt: 1_000, updatedAt: 2_000, expiresAt } }
  }

  /** Never near an instant at which something is done: the clock is moved by ten seconds at least. */
  private expiry(): Due {
    const inMs = this.random.integer(1, 60) * 10_000 + 5_000
    return this.random.pick<Due>(['never', { inMs }, { at: this.clock.now() + inMs }])
  }

  message({ owner, runId }: RunKey): NewMessage {
    const { random } = this
    return {
      ...{ owner, runId, kind: random.pick(['signal', 'cancel', 'pause']), name: random.pick([null, 'go']) },
      payload: random.pick([null, this.payload()]),
    }
  }

  content(eventCount: number): Pick<Change, 'events' | 'isCheckpoint' | 'snapshot' | 'stateVersion' | 'label'> {
    const { random } = this
    const events = Array.from({ length: eventCount }, () => this.event())
    if (eventCount === 0) return { events, isCheckpoint: false }
    const isCheckpoint = random.chance(0.85)
    return {
      ...{ events, isCheckpoint },
      ...maybe(random.chance(0.15), { snapshot: this.payload() }),
      ...maybe(random.chance(0.05), { stateVersion: random.integer(1, 3) }),
      ...maybe(isCheckpoint && random.chance(0.1), { label: random.pick(labels) }),
    }
  }

  someChunks(chance: number): { chunks?: NewChunks[] } {
    const { random } = this
    if (!random.chance(chance)) return {}
    const chunks = Array.from({ length: random.integer(0, 4) }, () => {
      const isAbort = random.chance(0.2)
      return {
        ...{ stream: random.pick(streams), tape: random.integer(1, 2), step: random.pick([null, 'a', 'a/b']) },
        ...{ count: random.integer(0, 3), attempt: random.integer(0, 2) },
        ...(isAbort ? { size: 1, payload: null } : { size: random.integer(1, 5), payload: this.payload() }),
      }
    })
    return { chunks }
  }

  private event(): NewEvent {
    const { random } = this
    return {
      ...{
        type: random.pick(eventTypes),
        step: random.pick([null, 'a', 'a/b']),
        count: random.integer(0, 3),
        attempt: random.integer(0, 2),
      },
      ...{ at: this.clock.now(), durationMs: random.pick([null, 0, 12]) },
      ...{ payload: random.chance(0.6) ? this.payload() : null, patch: random.chance(0.4) ? this.payload() : null },
    }
  }

  payload(): Payload {
    const { random } = this
    const number = random.integer(0, 1_000)
    return random.pick<() => Payload>([
      () => `{"n":${number}}`,
      () => `"é日🦞 ${number}"`,
      () => '',
      () => Uint8Array.from({ length: number % 40 }, (_, index) => (number * 7 + index * 31) & 255),
    ])()
  }

  /**
   * Instants end in other digits than those of the clock, and no two are within a second: what the stores' clocks differ by, also on a
   * busy machine, must not decide what is due, or who is first.
   */
  durationMs(min: number, max: number, from = this.clock.now()): number {
    for (;;) {
      const durationMs = this.random.integer(min, max) * 10_000 + 2_000 + this.random.integer(0, 5) * 1_000
      if (this.instants.has(from + durationMs)) continue
      this.instants.add(from + durationMs)
      return durationMs
    }
  }

  due(): Exclude<Due, 'never'> {
    const { random } = this
    if (random.chance(0.4)) return { inMs: 0 }
    if (random.chance(0.5)) return { inMs: this.durationMs(0, 40) }
    const from = this.clock.now() - 600_000
    return { at: from + this.durationMs(0, 90, from) }
  }

  owner(): string {
    return this.random.pickWeighted([
      [6, ''],
      [2, 'ann'],
      [1, 'x:y'],
    ])
  }

  threadId(): string {
    const threadIds = [...this.names.threadIds]
    return this.random.pick([...threadIds.slice(0, 5), ...threadIds.slice(-8)])
  }

  operationKey(): string {
    if (this.random.chance(0.15)) this.names.operationKeys.add(`k:${++this.lastNumber}`)
    return this.random.pick([...this.names.operationKeys].slice(-8))
  }
}
