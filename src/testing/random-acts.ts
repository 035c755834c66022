import type { QueueChange } from '../model/queue.ts'
import type { Committed } from '../store/change.ts'
import type { Claim, ClaimRequest, Store } from '../store/store.ts'
import type { Act, BySide, Side, SidedChange } from './act.ts'
import { maybe, type Random } from './random.ts'
import { always, RandomChanges } from './random-changes.ts'
import { RandomLeases } from './random-leases.ts'
import { RandomReads } from './random-reads.ts'
import { labels, owners, queues, RandomValues, workflows } from './random-values.ts'

/** Chooses one act after the other, from the names in use, the leases ever granted, and what the reference store says. */
export class RandomActs {
  private readonly random: Random
  private readonly values: RandomValues
  private readonly leases: RandomLeases
  private readonly changes: RandomChanges
  private readonly reads: RandomReads
  private readonly reference: Store

  constructor(random: Random, stores: BySide<Store>, clock: { now(): number }) {
    this.random = random
    this.reference = stores[0] as Store
    this.values = new RandomValues(random, clock)
    this.leases = new RandomLeases(random, this.reference)
    this.changes = new RandomChanges(random, { values: this.values, leases: this.leases, stores })
    this.reads = new RandomReads(random, this.values)
  }

  get names(): RandomValues['names'] {
    return this.values.names
  }

  nameOf(leaseId: string): string {
    return this.leases.nameOf(leaseId)
  }

  async nextAct(): Promise<Act> {
    // With few leases in hand most of what a holder does would be refused.
    const leased = this.leases.held.length === 0 ? 0.1 : 1
    const make = this.random.pickWeighted<() => Promise<Act> | Act>([
      [8, async () => this.commitAct('create', [this.changes.createChange()])],
      [0.2, () => this.startManyAct()],
      [14, () => this.claimAct()],
      [22 * leased, async () => this.commitAct('step', [await this.changes.stepChange()])],
      [9 * leased, async () => this.commitAct('leave', [await this.changes.leaveChange()])],
      [12 * leased, async () => this.commitAct('operation', [await this.changes.operationChange()])],
      [3, async () => this.commitAct('decide', [await this.changes.decisionChange()])],
      [7, async () => this.commitAct('control', [await this.changes.controlChange()])],
      [5, async () => this.commitAct('edit', [await this.changes.editChange()])],
      [4 * leased, async () => this.commitAct('read-mail', [await this.changes.readMailChange()])],
      [4 * leased, async () => this.commitAct('delivering', [await this.changes.deliveringChange()])],
      [5 * leased, () => this.batchAct()],
      [6, () => this.deliverAct()],
      [4, () => this.renewAct()],
      [3, () => this.tagAct()],
      [1, () => this.deleteAct()],
      [7, () => this.reads.readLogAct()],
      [7, () => this.reads.readAct()],
      [4, () => this.reads.listAct()],
      [3, () => this.queueAct()],
      [8, async () => this.commitAct('records', [await this.changes.recordsChange()])],
      [3 * leased, async () => this.commitAct('step-with-records', [await this.changes.leasedRecordsChange()])],
      [4, () => this.reads.readRecordsAct()],
      [2, () => this.reads.searchRecordsAct()],
      [0.5, () => this.sweepAct()],
      [3, () => this.dropAct()],
      [1, () => this.collectAct()],
    ])
    return make()
  }

  private commitAct(kind: string, changes: readonly SidedChange[]): Act {
    return {
      kind,
      what: changes.map((change) => change(0)),
      perform: (store, side) => store.commit(changes.map((change) => change(side))),
      settle: ([answers]) => {
        for (const [index, change] of changes.entries()) this.leases.forgetLease(change(0), (answers as Committed[])[index])
      },
    }
  }

  private async batchAct(): Promise<Act> {
    const changes: SidedChange[] = []
    for (let count = this.random.integer(2, 5); count > 0; count--) {
      const make = this.random.pick<() => Promise<SidedChange> | SidedChange>([
        () => this.changes.createChange(),
        () => this.changes.stepChange(),
        () => this.changes.stepChange(),
        () => this.changes.leaveChange(),
        () => this.changes.operationChange(),
        () => this.changes.deliveringChange(),
        () => this.changes.editChange(),
        () => this.changes.recordsChange(),
        () => this.changes.leasedRecordsChange(),
      ])
      changes.push(await make())
    }
    return this.commitAct('batch', changes)
  }

  /** Starts of runs on threads of their own, as many as a store may write together; now and then one that is there already. */
  private startManyAct(): Act {
    const starts = Array.from({ length: this.random.integer(8, 25) }, () => {
      const run = this.values.newRun(this.values.owner())
      const create = this.random.chance(0.03) ? run : { ...run, threadId: run.id }
      return { owner: run.owner, threadId: create.threadId, creates: [create] }
    })
    const none = { runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true } as const
    return this.commitAct(
      'start-many',
      starts.map((start) => always({ ...none, ...start })),
    )
  }

  private claimAct(): Act {
    const { random } = this
    const entry = (name: string, version: number) => ({
      name,
      version,
      ...(random.chance(0.1) ? { stateVersion: random.integer(0, 3) } : {}),
    })
    const all = workflows.flatMap((name) => [entry(name, 1), entry(name, 2)])
    const request: ClaimRequest = {
      ...{
        workerId: `w${random.integer(1, 3)}`,
        leaseMs: this.values.durationMs(5, 60),
        limit: random.pick([0, 1, 1, 2, 3, 10]),
      },
      workflows: random.chance(0.8) ? all : all.slice(0, random.integer(0, 3)),
      ...(random.chance(0.2) ? { queues: [random.pick(queues)] } : {}),
      ...maybe(random.chance(0.2), { queueLimits: [{ queue: random.pick(queues), limit: random.integer(0, 2) }] }),
      ...maybe(random.chance(0.5), {
        lastOwners: [0, 1].map((priority) => ({ priority, owner: random.pick([...owners, 'b', '~']) })),
      }),
      ...maybe(random.chance(0.2), { suspectLimit: random.integer(0, 2) }),
    }
    return {
      kind: 'claim',
      what: request,
      perform: (store) => store.claim(request),
      settle: (answers) => this.leases.takeLeases(answers as BySide<readonly Claim[]>),
    }
  }

  private async deliverAct(): Promise<Act> {
    const message = {
      ...this.values.message(await this.changes.receiver()),
      ...maybe(this.random.chance(0.4), { dedupeId: this.random.pick(['a', 'A', '%', 'é', 'e\u0301', 'x'.repeat(512), "'"]) }),
    }
    return { kind: 'deliver', what: message, perform: (store) => store.deliver(message) }
  }

  private async renewAct(): Promise<Act> {
    const { random } = this
    const chosen = [...this.leases.held, ...this.leases.stale].filter(() => random.chance(0.5))
    const known = await Promise.all(chosen.map((lease) => this.leases.known(lease)))
    const leaseMs = this.values.durationMs(5, 90)
    const request = (side: Side) => ({
      leaseMs,
      leases: chosen.map(({ owner, runId, epoch, leaseIds }, index) => ({
        ...{ owner, runId, epoch, leaseId: leaseIds[side] ?? '' },
        ...known[index],
      })),
    })
    return { kind: 'renew', what: request(0), perform: (store, side) => store.renew(request(side)) }
  }

  private async tagAct(): Promise<Act> {
    const { random } = this
    const [owner, threadId] = [this.values.owner(), this.values.threadId()]
    const checkpoints = await this.reference.listCheckpoints({ owner, threadId })
    const isKnown = checkpoints.length > 0 && random.chance(0.8)
    const seq = isKnown ? random.pick(checkpoints).seq : random.integer(0, 40)
    const request = { owner, threadId, seq, label: random.pick(labels) }
    return { kind: 'tag', what: request, perform: async (store) => ({ ok: (await store.tag(request)).ok }) }
  }

  private deleteAct(): Act {
    const request = { owner: this.values.owner(), threadId: this.values.threadId(), at: this.values.clock.now() }
    return { kind: 'delete', what: request, perform: (store) => store.deleteThread(request) }
  }

  private sweepAct(): Act {
    const request = { limit: this.random.pick([0, 1, 3, 100]) }
    return { kind: 'sweep-records', what: request, perform: (store) => store.sweepRecords(request) }
  }

  private dropAct(): Act {
    const { random } = this
    const thread = { owner: this.values.owner(), threadId: this.values.threadId() }
    const runIds = [...this.values.names.runIds].slice(-40)
    const query = {
      ...{ ...thread, limit: random.pick([0, 1, 3, 100]) },
      ...maybe(random.chance(0.4), { runIds: runIds.filter(() => random.chance(0.5)) }),
    }
    const isAsListed = random.chance(0.9)
    const perform = async (store: Store) => {
      const kept = (await store.listStreams(query)).map(({ finishedAt: _, ...rest }) => rest)
      const streams = isAsListed ? kept : kept.map((one) => ({ ...one, length: one.length + 1 }))
      return { kept, dropped: await store.dropChunks({ ...thread, streams }) }
    }
    return { kind: 'drop-chunks', what: query, perform }
  }

  private collectAct(): Act {
    const { random } = this
    const keys = Array.from({ length: random.integer(0, 3) }, () => ({
      owner: this.values.owner(),
      threadId: this.values.threadId(),
    }))
    const ahead = random.chance(0.1) ? 1 : 0
    const how = { closedBefore: random.pick([0, 1e15]), keepsLabelled: random.chance(0.5), isDryRun: random.chance(0.3) }
    const perform = async (store: Store) => {
      const read = await Promise.all(keys.map((key) => store.readThread(key)))
      // Tombstones are a store's own business.
      const live = read.flatMap((thread) => (thread === null || thread.deletedAt !== null ? [] : [thread]))
      const threads = live.map(({ owner, threadId, headSeq }) => ({ owner, threadId, headSeq: headSeq + ahead }))
      return store.collectThreads({ threads, ...how })
    }
    return { kind: 'collect-threads', what: { keys, ahead, ...how }, perform }
  }

  private queueAct(): Act {
    const { random } = this
    const name = random.pick(queues)
    if (random.chance(0.5)) {
      const query = maybe(random.chance(0.5), { name })
      return { kind: 'list-queues', what: query, perform: (store) => store.listQueues(query) }
    }
    // Mostly without limits: with them little is claimed, and little else happens.
    const limits: QueueChange = {
      name,
      ...maybe(random.chance(0.5), { concurrency: random.pick([null, 1, 2, 5]) }),
      ...maybe(random.chance(0.3), { maxQueued: random.pick([null, 0, 3, 10]) }),
      ...maybe(random.chance(0.3), {
        rateLimit: random.pick([null, { count: random.integer(1, 4), perMs: random.integer(2, 60) * 10_000 + 5_000 }]),
      }),
      ...maybe(random.chance(0.3), { isPaused: random.chance(0.5) }),
    }
    const change = random.chance(0.5) ? limits : { name, concurrency: null, maxQueued: null, rateLimit: null, isPaused: false }
    return { kind: 'set-queue', what: change, perform: (store) => store.setQueue(change) }
  }
}
