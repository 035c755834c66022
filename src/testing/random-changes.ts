import { isTerminal, type Run, type RunStatus, runStatuses } from '../model/run.ts'
import type { Change, Guard, RecordChange, RunChange } from '../store/change.ts'
import type { NewMessage, RunKey, Store } from '../store/store.ts'
import type { BySide, SidedChange } from './act.ts'
import { maybe, type Random } from './random.ts'
import type { Lease, RandomLeases } from './random-leases.ts'
import type { RandomValues } from './random-values.ts'

/** Changes of all kinds, most of them such as a store accepts. */
export class RandomChanges {
  private readonly random: Random
  private readonly values: RandomValues
  private readonly leases: RandomLeases
  private readonly stores: BySide<Store>
  private readonly reference: Store

  constructor(random: Random, { values, leases, stores }: { values: RandomValues; leases: RandomLeases; stores: BySide<Store> }) {
    this.random = random
    this.values = values
    this.leases = leases
    this.stores = stores
    this.reference = stores[0] as Store
  }

  createChange(): SidedChange {
    const owner = this.values.owner()
    const creates = Array.from({ length: this.random.pick([1, 1, 1, 2, 3]) }, () =>
      this.values.newRun(this.random.chance(0.9) ? owner : this.values.owner()),
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

  async stepChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.leases.lease()
    const run: RunChange = {
      ...maybe(random.chance(0.4), { hasProgress: true }),
      ...maybe(random.chance(0.1), { uncountClaim: true }),
      ...maybe(random.chance(0.4), { currentStep: random.pick([null, 'a', 'a/b']) }),
      ...this.extension(lease),
      ...maybe(random.chance(0.2), { reason: random.pick([null, 'retry', 'asked'] as const) }),
    }
    const startsTape = random.chance(0.25)
    const hasNewInput = startsTape && random.chance(0.4)
    const content = this.values.content(random.integer(startsTape ? 1 : 0, 4))
    const [first, ...rest] = content.events
    const events = hasNewInput && first !== undefined ? [{ ...first, payload: this.values.payload() }, ...rest] : content.events
    const fields = {
      ...{ ...content, events },
      ...maybe(random.chance(0.8) || startsTape, { run: { ...run, ...maybe(startsTape, { startsTape, hasNewInput }) } }),
      ...maybe(random.chance(0.08), { creates: [this.values.newRun(this.values.owner())] }),
      ...this.values.someChunks(0.3),
    }
    return this.knowingMail(await this.leasedChange(fields, lease), lease)
  }

  /** Once a lease, and by much: a store may leave a lease as it is that is nearly as long as asked for. */
  private extension(lease: Lease | undefined): { leaseMs?: number } {
    if (lease === undefined || lease.isExtended || !this.random.chance(0.2)) return {}
    lease.isExtended = true
    return { leaseMs: this.values.durationMs(200, 300) }
  }

  async leaveChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.leases.lease()
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
        due: random.chance(0.5) ? 'never' : this.values.due(),
      }),
      ...maybe(status === 'waiting' && random.chance(0.4), { waitKey: this.values.operationKey() }),
      // As an execution goes to wait.
      ...maybe(status === 'waiting' && random.chance(0.7), { currentStep: random.pick([null, 'a', 'b']) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { hasProgress: random.chance(0.8) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { uncountClaim: random.chance(0.8) }),
      ...maybe(status === 'waiting' && random.chance(0.3), { startsTape: true }),
      ...maybe(status === 'pending', { reason: null, due: this.values.due(), uncountClaim: random.chance(0.5) }),
      ...maybe(status === 'paused', { reason: random.pick(['asked', 'budget'] as const) }),
      // As an execution ends its run.
      ...maybe(isTerminal(status) && random.chance(0.8), { reason: null, currentStep: null, hasProgress: random.chance(0.8) }),
      ...maybe(isTerminal(status) && random.chance(0.3), { startsTape: true }),
    }
    const delivers = random.chance(0.2) ? await this.messages(lease) : []
    const fields = {
      ...(status === 'waiting' && random.chance(0.4)
        ? { events: [], isCheckpoint: false }
        : this.values.content(random.integer(1, 2))),
      run,
      ...maybe(delivers.length > 0, { delivers }),
      ...this.values.someChunks(0.2),
    }
    return this.knowingMail(await this.leasedChange(fields, lease), lease)
  }

  /** A change of any kind that also puts messages into inboxes: of runs that are there, have ended or never were, and of its own new ones. */
  async deliveringChange(): Promise<SidedChange> {
    const lease = this.leases.lease()
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
    for (const { owner, id } of change(0).creates ?? []) delivers.push(this.values.message({ owner, runId: id }))
    return (side) => ({ ...change(side), delivers })
  }

  private async messages(lease: Lease | undefined): Promise<NewMessage[]> {
    const messages: NewMessage[] = []
    for (let count = this.random.integer(1, 3); count > 0; count--) {
      const isOwn = lease !== undefined && this.random.chance(0.1)
      messages.push(this.values.message(isOwn ? lease : await this.receiver()))
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

  async operationChange(): Promise<SidedChange> {
    const { random } = this
    const lease = this.leases.lease()
    const owner = lease?.owner ?? this.values.owner()
    const key = this.values.operationKey()
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
        ...this.values.content(random.integer(0, 2)),
        operation: this.values.operation(kind, key),
        ...this.values.someChunks(0.1),
        ...maybe(kind === 'intend', { mustSync: true, isCheckpoint: false }),
        ...maybe(waits, { run: { status: 'waiting', reason: 'effect', due: 'never', waitKey: key } as const }),
      },
      lease,
    )
  }

  /** A person resolves, or a fenced holder leaves evidence. */
  async decisionChange(): Promise<SidedChange> {
    const { random } = this
    const owner = this.values.owner()
    const unsure = []
    for (const key of this.values.names.operationKeys) {
      const operation = await this.reference.readOperation({ owner, key })
      if (operation?.status === 'unsure') unsure.push(operation)
    }
    const known = unsure.length > 0 && random.chance(0.8) ? random.pick(unsure) : null
    const key = known?.key ?? this.values.operationKey()
    const operation = this.values.operation(random.chance(0.6) ? 'resolve' : 'note', key)
    return always({
      owner,
      threadId: known?.threadId ?? this.values.threadId(),
      runId: known?.runId ?? null,
      ...unguarded,
      operation,
    })
  }

  /** Pause, resume, retry or cancel by somebody who does not hold the run. */
  async controlChange(): Promise<SidedChange> {
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
        ? { status: to, reason: null, due: this.values.due(), hasProgress: true }
        : { status: to, reason: 'asked', setsEnd: true }
    return always({ owner, threadId, runId, guard, ...this.values.content(1), run: change })
  }

  async editChange(): Promise<SidedChange> {
    const { random } = this
    const [owner, threadId] = [this.values.owner(), this.values.threadId()]
    const head = (await this.reference.readThread({ owner, threadId }))?.headSeq ?? 0
    const headSeq = random.chance(0.85) ? head : Math.max(0, head + random.pick([-1, 1]))
    return always({
      owner,
      threadId,
      runId: null,
      guard: { kind: 'thread', headSeq },
      ...this.values.content(random.integer(1, 2)),
    })
  }

  async readMailChange(): Promise<SidedChange> {
    const lease = this.leases.lease()
    if (lease === undefined) return this.createChange()
    const { owner, runId } = lease
    const inboxes = await Promise.all(this.stores.map((store) => store.readInbox({ owner, runId })))
    const taken = (inboxes[0] ?? []).map(() => this.random.chance(0.7))
    const change = await this.knowingMail(await this.leasedChange(this.values.content(1), lease), lease)
    return (side) => ({
      ...change(side),
      readMessages: (inboxes[side] ?? []).filter((_, index) => taken[index] === true).map(({ id }) => id),
    })
  }

  /** Under a lease that is held, now and then one that is stale or never was. */
  private async leasedChange(
    fields: Omit<Change, 'owner' | 'threadId' | 'runId' | 'guard'>,
    lease = this.leases.lease(),
  ): Promise<SidedChange> {
    if (lease === undefined)
      return always({ owner: '', threadId: 't', runId: 'nobody', guard: { kind: 'lease', epoch: 1, leaseId: 'none' }, ...fields })
    const { owner, threadId, runId } = lease
    const epoch = this.random.chance(0.97) ? lease.epoch : lease.epoch + this.random.pick([-1, 1])
    const known = await this.leases.known(lease)
    return (side) => ({
      ...{ owner, threadId, runId },
      guard: { kind: 'lease', epoch, leaseId: lease.leaseIds[side] ?? '', ...known },
      ...fields,
    })
  }

  /** Records of one owner, mostly such as are there, with the versions that they have. */
  async recordsChange(): Promise<SidedChange> {
    const owner = this.values.owner()
    return always({ owner, threadId: this.values.threadId(), runId: null, ...unguarded, records: await this.records(owner) })
  }

  /** A step, or an operation, with records beside it. */
  async leasedRecordsChange(): Promise<SidedChange> {
    const change = await (this.random.chance(0.7) ? this.stepChange() : this.operationChange())
    const records = await this.records(change(0).owner)
    return (side) => ({ ...change(side), records })
  }

  private async records(owner: string): Promise<RecordChange[]> {
    const { random } = this
    const places = this.values.recordPlaces(random.pick([1, 1, 2, 4]))
    return Promise.all(
      places.map(async ({ collection, key }): Promise<RecordChange> => {
        const [found] = await this.reference.readRecords({ owner, collection, where: { keys: [key] }, limit: 1 })
        const version = (found?.version ?? 0) + (random.chance(0.75) ? 0 : random.pick([-1, 1]))
        return this.values.recordChange({ collection, key }, random.chance(0.5) ? Math.max(0, version) : undefined)
      }),
    )
  }

  async receiver(): Promise<RunKey> {
    const run = this.random.chance(0.9) ? await this.anyRun() : null
    return run === null ? { owner: this.values.owner(), runId: 'nobody' } : { owner: run.owner, runId: run.id }
  }

  private async anyRun(): Promise<Run | null> {
    for (let tries = 0; tries < 6 && this.values.runKeys.length > 0; tries++) {
      const run = await this.reference.readRun(this.random.pick(this.values.runKeys.slice(-40)))
      if (run !== null && (!isTerminal(run.status) || this.random.chance(0.3))) return run
    }
    return null
  }
}

const unguarded = { guard: { kind: 'none' }, events: [], isCheckpoint: false } as const

/** The same for every store. */
export function always(change: Change): SidedChange {
  return () => change
}
