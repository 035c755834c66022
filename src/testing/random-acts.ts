import { type EventType, eventTypes, type NewEvent } from '../model/event.ts'
import type { Payload } from '../model/payload.ts'
import type { QueueChange } from '../model/queue.ts'
import { isTerminal, type Run, type RunStatus, runStatuses } from '../model/run.ts'
import type { NewChunks } from '../model/stream.ts'
import type { Change, Committed, Due, Guard, NewRun, OperationChange, RunChange } from '../store/change.ts'
import type { Claim, ClaimRequest, LogQuery, NewMessage, RunKey, Store } from '../store/store.ts'
import type { Random } from './random.ts'
import { listAllRuns, listAllThreads } from './store-contents.ts'

/** Which of the stores a change is made for, the first being the reference: lease ids and message ids differ. */
export type Side = number

/** One for each store. */
export type BySide<Value> = readonly Value[]

/** One act of the contract, performed on all stores. */
export interface Act {
  readonly kind: string
  /** For the trace of a failure. */
  readonly what: unknown
  perform(store: Store, side: Side): Promise<unknown>
  /** Takes what was learnt from the answers into the world. */
  settle?(answers: BySide<unknown>): void
}

interface Lease {
  readonly owner: string
  readonly runId: string
  readonly threadId: string
  readonly epoch: number
  readonly leaseIds: BySide<string>
  /** A commit has asked for a longer lease. */
  isExtended: boolean
}

type SidedChange = (side: Side) => Change

const owners = ['', 'ann', 'x:y']
const queues = ['default', 'slow']
const workflows = ['chat', 'report']
const labels = ['start', 'good', "it's", '%']
const streams = ['tokens', 'tokens:1', 'é', '__proto__']

/** What acts are chosen from: the names in use, the leases ever granted, and the reference store to look things up in. */
export class World {
  readonly names = {
    owners: new Set(owners),
    threadIds: new Set(['t', 't/1', 't/10', '__proto__', '*']),
    runIds: new Set<string>(),
    operationKeys: new Set(['k', 'k:1', 'k:10', '%', "k'", 'é']),
  }
  private readonly random: Random
  private readonly stores: BySide<Store>
  private readonly reference: Store
  private readonly clock: { now(): number }
  private readonly leaseNames = new Map<string, string>()
  private readonly runKeys: RunKey[] = []
  private held: Lease[] = []
  private stale: Lease[] = []
  private lastNumber = 0
  private readonly instants = new Set<number>()

  constructor(random: Random, stores: BySide<Store>, clock: { now(): number }) {
    this.random = random
    this.stores = stores
    this.reference = stores[0] as Store
    this.clock = clock
  }

  nameOf(leaseId: string): string {
    return this.leaseNames.get(leaseId) ?? leaseId
  }

  async nextAct(): Promise<Act> {
    // With few leases in hand most of what a holder does would be refused.
    const leased = this.held.length === 0 ? 0.1 : 1
    const make = this.random.pickWeighted<() => Promise<Act> | Act>([
      [8, async () => this.commitAct('create', [this.createChange()])],
      [0.2, () => this.startManyAct()],
      [14, () => this.claimAct()],
      [22 * leased, async () => this.commitAct('step', [await this.stepChange()])],
      [9 * leased, async () => this.commitAct('leave', [await this.leaveChange()])],
      [12 * leased, async () => this.commitAct('operation', [await this.operationChange()])],
      [3, async () => this.commitAct('decide', [await this.decisionChange()])],
      [7, async () => this.commitAct('control', [await this.controlChange()])],
      [5, async () => this.commitAct('edit', [await this.editChange()])],
      [4 * leased, async () => this.commitAct('read-mail', [await this.readMailChange()])],
      [4 * leased, async () => this.commitAct('delivering', [await this.deliveringChange()])],
      [5 * leased, () => this.batchAct()],
      [6, () => this.deliverAct()],
      [4, () => this.renewAct()],
      [3, () => this.tagAct()],
      [1, () => this.deleteAct()],
      [7, () => this.readLogAct()],
      [7, () => this.readAct()],
      [4, () => this.listAct()],
      [3, () => this.queueAct()],
    ])
    return make()
  }

  private commitAct(kind: string, changes: readonly SidedChange[]): Act {
    return {
      kind,
      what: changes.map((change) => change(0)),
      perform: (store, side) => store.commit(changes.map((change) => change(side))),
      settle: ([answers]) => {
        for (const [index, change] of changes.entries()) this.forgetLease(change(0), (answers as Committed[])[index])
      },
    }
  }

  private async batchAct(): Promise<Act> {
    const changes: SidedChange[] = []
    for (let count = this.random.integer(2, 5); count > 0; count--) {
      const make = this.random.pick<() => Promise<SidedChange> | SidedChange>([
        () => this.createChange(),
        () => this.stepChange(),
        () => this.stepChange(),
        () => this.leaveChange(),
        () => this.operationChange(),
        () => this.deliveringChange(),
        () => this.editChange(),
      ])
      changes.push(await make())
    }
    return this.commitAct('batch', changes)
  }

  /** Starts of runs on threads of their own, as many as a store may write together; now and then one that is there already. */
  private startManyAct(): Act {
    const starts = Array.from({ length: this.random.integer(8, 25) }, () => {
      const run = this.newRun(this.owner())
      const create = this.random.chance(0.03) ? run : { ...run, threadId: run.id }
      return { owner: run.owner, threadId: create.threadId, creates: [create] }
    })
    const none = { runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true } as const
    return this.commitAct(
      'start-many',
      starts.map((start) => always({ ...none, ...start })),
    )
  }

  private createChange(): SidedChange {
    const owner = this.owner()
    const creates = Array.from({ length: this.random.pick([1, 1, 1, 2, 3]) }, () =>
      this.newRun(this.random.chance(0.9) ? owner : this.owner()),
    )
    return always({
      owner,
      threadId: creates[0]?.threadId ?? 't',
      runId: null,
      guard: { kind: 'none' },
      events: [],
      isCheckpoint: false,
      creates,
    })
  }

  private newRun(owner: string): NewRun {
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

  private claimAct(): Act {
    const { random } = this
    const entry = (name: string, version: number) => ({
      name,
      version,
      ...(random.chance(0.1) ? { stateVersion: random.integer(0, 3) } : {}),
    })
    const all = workflows.flatMap((name) => [entry(name, 1), entry(name, 2)])
    const request: ClaimRequest = {
      ...{ workerId: `w${random.integer(1, 3)}`, leaseMs: this.durationMs(5, 60), limit: random.pick([0, 1, 1, 2, 3, 10]) },
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
      settle: (answers) => this.takeLeases(answers as BySide<readonly Claim[]>),
    }
  }

  /** Called before the answers are compared, so that the lease ids in them have names. */
  private takeLeases(answers: BySide<readonly Claim[]>): void {
    for (const { run, leaseId } of answers.flat()) {
      this.leaseNames.set(leaseId, `lease ${run.epoch} of ${run.id} of "${run.owner}"`)
    }
    for (const [index, { run }] of (answers[0] ?? []).entries()) {
      const { owner, id: runId, threadId, epoch } = run
      const claims = answers.flatMap((claims) => claims[index] ?? [])
      // A store that has claimed something else is about to be told of.
      if (claims.filter((claim) => claim.run.id === runId).length < answers.length) return
      const [taken, kept] = partition(this.held, (lease) => lease.owner === owner && lease.runId === runId)
      this.stale.push(...taken)
      const leaseIds = claims.map(({ leaseId }) => leaseId)
      this.held = [...kept, { owner, runId, threadId, epoch, leaseIds, isExtended: false }]
    }
    this.stale = this.stale.slice(-20)
  }

  /** After a change that gave the lease up, or found it lost. */
  private forgetLease({ guard, run }: Change, answer: Committed | undefined): void {
    if (guard.kind !== 'lease' || answer === undefined) return
    const isLeft = answer.ok && run?.status !== undefined && run.status !== 'running'
    if (!isLeft && (answer.ok || answer.refusal !== 'lease_lost')) return
    const [left, kept] = partition(this.held, ({ epoch, leaseIds }) => epoch === guard.epoch && leaseIds[0] === guard.leaseId)
    this.stale.push(...left)
    this.held = kept
  }

  private async stepChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.lease()
    const run: RunChange = {
      ...maybe(random.chance(0.4), { hasProgress: true }),
      ...maybe(random.chance(0.1), { uncountClaim: true }),
      ...maybe(random.chance(0.4), { currentStep: random.pick([null, 'a', 'a/b']) }),
      ...this.extension(lease),
      ...maybe(random.chance(0.2), { reason: random.pick([null, 'retry', 'asked'] as const) }),
    }
    const startsTape = random.chance(0.25)
    const hasNewInput = startsTape && random.chance(0.4)
    const content = this.content(random.integer(startsTape ? 1 : 0, 4))
    const [first, ...rest] = content.events
    const events = hasNewInput && first !== undefined ? [{ ...first, payload: this.payload() }, ...rest] : content.events
    const fields = {
      ...{ ...content, events },
      ...maybe(random.chance(0.8) || startsTape, { run: { ...run, ...maybe(startsTape, { startsTape, hasNewInput }) } }),
      ...maybe(random.chance(0.08), { creates: [this.newRun(this.owner())] }),
      ...this.someChunks(0.3),
    }
    return this.knowingMail(await this.leasedChange(fields, lease), lease)
  }

  /** Once a lease, and by much: a store may leave a lease as it is that is nearly as long as asked for. */
  private extension(lease: Lease | undefined): { leaseMs?: number } {
    if (lease === undefined || lease.isExtended || !this.random.chance(0.2)) return {}
    lease.isExtended = true
    return { leaseMs: this.durationMs(200, 300) }
  }

  private async leaveChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.lease()
    const status = random.pickWeighted<RunStatus>([
      [4, 'completed'],
      [2, 'failed'],
      [1, 'cancelled'],
      [4, 'waiting'],
      [2, 'paused'],
      [2, 'pending'],
    ])
    const run: RunChange = {
      status,
      ...maybe(status !== 'waiting' || random.chance(0.3), { setsEnd: isTerminal(status) || status === 'paused' }),
      ...maybe(status === 'waiting', {
        reason: random.pick(['timer', 'effect', 'signal'] as const),
        due: random.chance(0.5) ? 'never' : this.due(),
      }),
      ...maybe(status === 'waiting' && random.chance(0.4), { waitKey: this.operationKey() }),
      // As an execution goes to wait.
      ...maybe(status === 'waiting' && random.chance(0.7), { currentStep: random.pick([null, 'a', 'b']) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { hasProgress: random.chance(0.8) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { uncountClaim: random.chance(0.8) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { startsTape: true }),
      ...maybe(status === 'pending', { reason: null, due: this.due(), uncountClaim: random.chance(0.5) }),
      ...maybe(status === 'paused', { reason: random.pick(['asked', 'budget'] as const) }),
      // As an execution ends its run.
      ...maybe(isTerminal(status) && random.chance(0.8), { reason: null, currentStep: null, hasProgress: random.chance(0.8) }),
      ...maybe(isTerminal(status) && random.chance(0.3), { startsTape: true }),
    }
    const delivers = random.chance(0.2) ? await this.messages(lease) : []
    const fields = {
      ...(status === 'waiting' && random.chance(0.4) ? { events: [], isCheckpoint: false } : this.content(random.integer(1, 2))),
      run,
      ...maybe(delivers.length > 0, { delivers }),
      ...this.someChunks(0.2),
    }
    return this.knowingMail(await this.leasedChange(fields, lease), lease)
  }

  /** A change of any kind that also puts messages into inboxes: of runs that are there, have ended or never were, and of its own new ones. */
  private async deliveringChange(): Promise<SidedChange> {
    const lease = this.lease()
    const make = this.random.pick<() => Promise<SidedChange> | SidedChange>([
      () => this.createChange(),
      () => this.stepChange(),
      () => this.stepChange(),
      () => this.operationChange(),
      () => this.controlChange(),
      () => this.editChange(),
    ])
    const change = await make()
    const delivers = await this.messages(lease)
    for (const { owner, id } of change(0).creates ?? []) delivers.push(this.message({ owner, runId: id }))
    return (side) => ({ ...change(side), delivers })
  }

  private async messages(lease: Lease | undefined): Promise<NewMessage[]> {
    const messages: NewMessage[] = []
    for (let count = this.random.integer(1, 3); count > 0; count--) {
      const isOwn = lease !== undefined && this.random.chance(0.1)
      messages.push(this.message(isOwn ? lease : await this.receiver()))
    }
    return messages
  }

  /** The writer has seen some of the run's mail, and leaves it where it is. */
  private async knowingMail(change: SidedChange, lease: Lease | undefined): Promise<SidedChange> {
    if (lease === undefined || !this.random.chance(0.3)) return change
    const { owner, runId } = lease
    const inboxes = await Promise.all(this.stores.map((store) => store.readInbox({ owner, runId })))
    const seen = this.random.integer(0, inboxes[0]?.length ?? 0)
    return (side) => ({ ...change(side), mailSeen: inboxes[side]?.[seen - 1]?.id ?? 0 })
  }

  private async operationChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.lease()
    const owner = lease?.owner ?? this.owner()
    const key = this.operationKey()
    const operation = await this.reference.readOperation({ owner, key })
    const isMine = operation !== null && operation.runId === lease?.runId
    const closings = isMine && operation.status === 'completed' ? (['undo'] as const) : (['complete', 'fail', 'doubt'] as const)
    const kinds = isMine ? closings : (['intend', 'intend', 'ask'] as const)
    const kind = random.chance(0.85)
      ? random.pick(kinds)
      : random.pick(['intend', 'ask', 'complete', 'fail', 'doubt', 'undo'] as const)
    const waits = kind === 'doubt' && random.chance(0.5)
    return this.leasedChange(
      {
        ...this.content(random.integer(0, 2)),
        operation: this.operation(kind, key),
        ...this.someChunks(0.1),
        ...maybe(kind === 'intend', { mustSync: true, isCheckpoint: false }),
        ...maybe(waits, { run: { status: 'waiting', reason: 'effect', due: 'never', waitKey: key } as const }),
      },
      lease,
    )
  }

  /** A person resolves, or a fenced holder leaves evidence. */
  private async decisionChange(): Promise<SidedChange> {
    const { random } = this
    const owner = this.owner()
    const unsure = []
    for (const key of this.names.operationKeys) {
      const operation = await this.reference.readOperation({ owner, key })
      if (operation?.status === 'unsure') unsure.push(operation)
    }
    const known = unsure.length > 0 && random.chance(0.8) ? random.pick(unsure) : null
    const key = known?.key ?? this.operationKey()
    const operation = this.operation(random.chance(0.6) ? 'resolve' : 'note', key)
    return always({ owner, threadId: known?.threadId ?? this.threadId(), runId: known?.runId ?? null, ...unguarded, operation })
  }

  private operation(kind: OperationChange['kind'], key: string): OperationChange {
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

  /** Pause, resume, retry or cancel by somebody who does not hold the run. */
  private async controlChange(): Promise<SidedChange> {
    const { random } = this
    const run = await this.anyRun()
    if (run === null) return this.createChange()
    const status: RunStatus = random.chance(0.9) ? run.status : random.pick(runStatuses)
    const epoch = random.chance(0.92) ? run.epoch : run.epoch + random.pick([-1, 1])
    const guard: Guard = { kind: 'run', epoch, status, ...maybe(random.chance(0.4), { undisturbed: true }) }
    const to: RunStatus =
      isTerminal(run.status) || run.status === 'paused' ? 'pending' : random.pick(['paused', 'cancelled', 'paused'] as const)
    const runId = random.chance(0.95) ? run.id : 'nobody'
    const { owner, threadId } = run
    const change: RunChange =
      to === 'pending'
        ? { status: to, reason: null, due: this.due(), hasProgress: true }
        : { status: to, reason: 'asked', setsEnd: true }
    return always({ owner, threadId, runId, guard, ...this.content(1), run: change })
  }

  private async editChange(): Promise<SidedChange> {
    const { random } = this
    const [owner, threadId] = [this.owner(), this.threadId()]
    const head = (await this.reference.readThread({ owner, threadId }))?.headSeq ?? 0
    const headSeq = random.chance(0.85) ? head : Math.max(0, head + random.pick([-1, 1]))
    return always({ owner, threadId, runId: null, guard: { kind: 'thread', headSeq }, ...this.content(random.integer(1, 2)) })
  }

  private async readMailChange(): Promise<SidedChange> {
    const lease = this.lease()
    if (lease === undefined) return this.createChange()
    const { owner, runId } = lease
    const inboxes = await Promise.all(this.stores.map((store) => store.readInbox({ owner, runId })))
    const taken = (inboxes[0] ?? []).map(() => this.random.chance(0.7))
    const change = await this.knowingMail(await this.leasedChange(this.content(1), lease), lease)
    return (side) => ({
      ...change(side),
      readMessages: (inboxes[side] ?? []).filter((_, index) => taken[index] === true).map(({ id }) => id),
    })
  }

  private async deliverAct(): Promise<Act> {
    const message = {
      ...this.message(await this.receiver()),
      ...maybe(this.random.chance(0.4), { dedupeId: this.random.pick(['a', 'A', '%', 'é', 'e\u0301', 'x'.repeat(512), "'"]) }),
    }
    return { kind: 'deliver', what: message, perform: (store) => store.deliver(message) }
  }

  private async receiver(): Promise<RunKey> {
    const run = this.random.chance(0.9) ? await this.anyRun() : null
    return run === null ? { owner: this.owner(), runId: 'nobody' } : { owner: run.owner, runId: run.id }
  }

  private message({ owner, runId }: RunKey): NewMessage {
    const { random } = this
    return {
      ...{ owner, runId, kind: random.pick(['signal', 'cancel', 'pause']), name: random.pick([null, 'go']) },
      payload: random.pick([null, this.payload()]),
    }
  }

  private async renewAct(): Promise<Act> {
    const { random } = this
    const chosen = [...this.held, ...this.stale].filter(() => random.chance(0.5))
    const known = await Promise.all(chosen.map((lease) => this.known(lease)))
    const leaseMs = this.durationMs(5, 90)
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
    const [owner, threadId] = [this.owner(), this.threadId()]
    const checkpoints = await this.reference.listCheckpoints({ owner, threadId })
    const isKnown = checkpoints.length > 0 && random.chance(0.8)
    const seq = isKnown ? random.pick(checkpoints).seq : random.integer(0, 40)
    const request = { owner, threadId, seq, label: random.pick(labels) }
    return { kind: 'tag', what: request, perform: async (store) => ({ ok: (await store.tag(request)).ok }) }
  }

  private deleteAct(): Act {
    const request = { owner: this.owner(), threadId: this.threadId(), at: this.clock.now() }
    return { kind: 'delete', what: request, perform: (store) => store.deleteThread(request) }
  }

  private readLogAct(): Act {
    const { random } = this
    const runIds = [...this.names.runIds].slice(-40)
    const query: LogQuery = {
      ...{ owner: this.owner(), threadId: this.threadId() },
      ...maybe(random.chance(0.4), { afterSeq: random.integer(0, 60) }),
      ...maybe(random.chance(0.3), { toSeq: random.integer(0, 90) }),
      ...maybe(random.chance(0.3), { limit: random.integer(0, 12) }),
      ...maybe(random.chance(0.4) && runIds.length > 0, {
        runId: random.pick([...runIds, 'nobody']),
        withEdits: random.chance(0.5),
      }),
      ...maybe(random.chance(0.2), { types: [random.pick(eventTypes), 'run_queued', 'step_completed'] as EventType[] }),
      ...maybe(random.chance(0.2), { patchesOnly: true }),
      ...maybe(random.chance(0.2), { bare: true }),
      ...maybe(random.chance(0.2), { payloadsOf: [random.pick(eventTypes), 'run_queued', 'step_failed'] as EventType[] }),
    }
    if (random.chance(0.7)) return { kind: 'read-log', what: query, perform: (store) => store.readLog(query) }
    const queries = [query, { owner: this.owner(), threadId: this.threadId() }, { ...query, threadId: this.threadId() }]
    return { kind: 'read-logs', what: queries, perform: (store) => store.readLogs(queries) }
  }

  private async readAct(): Promise<Act> {
    const { random } = this
    const threadId = this.threadId()
    const { owner, runId } = this.runKeys.length > 0 ? random.pick(this.runKeys.slice(-40)) : { owner: '', runId: 'nobody' }
    const key = this.operationKey()
    const snapshotQuery = { owner, threadId, atSeq: random.integer(0, 100) }
    const checkpointQuery = {
      ...{ owner, threadId },
      ...maybe(random.chance(0.3), { afterSeq: random.integer(0, 40) }),
      ...maybe(random.chance(0.3), { limit: random.integer(0, 9) }),
      ...maybe(random.chance(0.3), { label: random.pick(labels) }),
    }
    const chunkQuery = {
      ...{ owner, runId, stream: random.pick(streams), from: random.integer(0, 12), limit: random.integer(0, 9) },
      ...maybe(random.chance(0.3), { abortsOnly: true }),
    }
    return random.pick<Act>([
      { kind: 'read-chunks', what: chunkQuery, perform: (store) => store.readChunks(chunkQuery) },
      { kind: 'read-run', what: { owner, runId }, perform: (store) => store.readRun({ owner, runId }) },
      { kind: 'read-thread', what: { owner, threadId }, perform: (store) => store.readThread({ owner, threadId }) },
      { kind: 'read-inbox', what: { owner, runId }, perform: (store) => store.readInbox({ owner, runId }) },
      { kind: 'read-operation', what: { owner, key }, perform: (store) => store.readOperation({ owner, key }) },
      { kind: 'list-unsure', what: { owner, limit: 7 }, perform: (store) => store.listUnsure({ owner, limit: 7 }) },
      { kind: 'read-snapshot', what: snapshotQuery, perform: (store) => store.readSnapshot(snapshotQuery) },
      { kind: 'list-checkpoints', what: checkpointQuery, perform: (store) => store.listCheckpoints(checkpointQuery) },
    ])
  }

  private listAct(): Act {
    const { random } = this
    const owner = this.owner()
    const limit = random.integer(1, 20)
    const query = {
      ...{ owner, limit },
      ...maybe(random.chance(0.3), { threadId: this.threadId() }),
      ...maybe(random.chance(0.3), { workflow: random.pick(workflows) }),
      ...maybe(random.chance(0.3), { queue: random.pick(queues) }),
      ...maybe(random.chance(0.2), { withoutPrefix: random.pick(['c', 'report', 'reports', 'port']) }),
      ...maybe(random.chance(0.3), { statuses: runStatuses.filter(() => random.chance(0.5)) }),
      ...maybe(random.chance(0.15), { label: random.pick(labels) }),
      // The clock is moved by ten seconds at least, so no run was created near these instants.
      ...maybe(random.chance(0.15), { createdAfter: this.clock.now() - random.integer(1, 60) * 10_000 + 5_000 }),
      ...maybe(random.chance(0.15), { createdBefore: this.clock.now() - random.integer(1, 60) * 10_000 + 5_000 }),
    }
    return random.pickWeighted<Act>([
      [5, { kind: 'list-runs', what: query, perform: (store) => listAllRuns(store, query) }],
      [1, { kind: 'list-runs', what: 'limit 0', perform: (store) => store.listRuns({ ...query, limit: 0 }) }],
      [1, { kind: 'list-runs', what: 'bad cursor', perform: (store) => store.listRuns({ ...query, cursor: 'no cursor!' }) }],
      [3, { kind: 'list-threads', what: { owner, limit }, perform: (store) => listLiveThreads(store, owner, limit) }],
    ])
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

  /** Under a lease that is held, now and then one that is stale or never was. */
  private async leasedChange(
    fields: Omit<Change, 'owner' | 'threadId' | 'runId' | 'guard'>,
    lease = this.lease(),
  ): Promise<SidedChange> {
    if (lease === undefined)
      return always({ owner: '', threadId: 't', runId: 'nobody', guard: { kind: 'lease', epoch: 1, leaseId: 'none' }, ...fields })
    const { owner, threadId, runId } = lease
    const epoch = this.random.chance(0.97) ? lease.epoch : lease.epoch + this.random.pick([-1, 1])
    const known = await this.known(lease)
    return (side) => ({
      ...{ owner, threadId, runId },
      guard: { kind: 'lease', epoch, leaseId: lease.leaseIds[side] ?? '', ...known },
      ...fields,
    })
  }

  /** What a holder says it has seen: mostly what is there or less, now and then more than that. */
  private async known({ owner, threadId }: Lease): Promise<{ writtenSeq?: number }> {
    const { random } = this
    if (random.chance(0.4)) return {}
    const further = random.chance(0.9) ? random.pick([0, 0, 0, -1, -7]) : random.pick([1, 2, 9])
    const thread = await this.reference.readThread({ owner, threadId })
    return { writtenSeq: Math.max(0, (thread?.writtenSeq ?? 0) + further) }
  }

  private lease(): Lease | undefined {
    const from = this.stale.length > 0 && this.random.chance(0.08) ? this.stale : this.held
    return from.length === 0 ? undefined : this.random.pick(from)
  }

  private content(eventCount: number): Pick<Change, 'events' | 'isCheckpoint' | 'snapshot' | 'stateVersion' | 'label'> {
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

  private someChunks(chance: number): { chunks?: NewChunks[] } {
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

  private payload(): Payload {
    const { random } = this
    const number = random.integer(0, 1_000)
    return random.pick<() => Payload>([
      () => `{"n":${number}}`,
      () => `"é日🦞 ${number}"`,
      () => '',
      () => Uint8Array.from({ length: number % 40 }, (_, index) => (number * 7 + index * 31) & 255),
    ])()
  }

  private async anyRun(): Promise<Run | null> {
    for (let tries = 0; tries < 6 && this.runKeys.length > 0; tries++) {
      const run = await this.reference.readRun(this.random.pick(this.runKeys.slice(-40)))
      if (run !== null && (!isTerminal(run.status) || this.random.chance(0.3))) return run
    }
    return null
  }

  /**
   * Instants end in other digits than those of the clock, and no two are within a second: what the stores' clocks differ by, also on a
   * busy machine, must not decide what is due, or who is first.
   */
  private durationMs(min: number, max: number, from = this.clock.now()): number {
    for (;;) {
      const durationMs = this.random.integer(min, max) * 10_000 + 2_000 + this.random.integer(0, 5) * 1_000
      if (this.instants.has(from + durationMs)) continue
      this.instants.add(from + durationMs)
      return durationMs
    }
  }

  private due(): Exclude<Due, 'never'> {
    const { random } = this
    if (random.chance(0.4)) return { inMs: 0 }
    if (random.chance(0.5)) return { inMs: this.durationMs(0, 40) }
    const from = this.clock.now() - 600_000
    return { at: from + this.durationMs(0, 90, from) }
  }

  private owner(): string {
    return this.random.pickWeighted([
      [6, ''],
      [2, 'ann'],
      [1, 'x:y'],
    ])
  }

  private threadId(): string {
    const threadIds = [...this.names.threadIds]
    return this.random.pick([...threadIds.slice(0, 5), ...threadIds.slice(-8)])
  }

  private operationKey(): string {
    if (this.random.chance(0.15)) this.names.operationKeys.add(`k:${++this.lastNumber}`)
    return this.random.pick([...this.names.operationKeys].slice(-8))
  }
}

const unguarded = { guard: { kind: 'none' }, events: [], isCheckpoint: false } as const

const always =
  (change: Change): SidedChange =>
  () =>
    change

/** Tombstones may be listed or not. */
async function listLiveThreads(store: Store, owner: string, limit: number) {
  return (await listAllThreads(store, { owner, limit })).filter(({ deletedAt }) => deletedAt === null)
}

function maybe<Fields extends object>(isWanted: boolean, fields: Fields): Fields | Record<never, never> {
  return isWanted ? fields : {}
}

function partition<Item>(items: readonly Item[], belongs: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(belongs), items.filter((item) => !belongs(item))]
}
