import { it } from 'vitest'
import { HoldfastError, invariant } from '../../model/errors.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { Run, RunStatus } from '../../model/run.ts'
import type { NewChunks } from '../../model/stream.ts'
import type { Change, Committed, Guard, NewRun, Refusal, RunChange } from '../../store/change.ts'
import type { Claim, ClaimRequest, Delivery, Store, Thread } from '../../store/store.ts'
import { plainPayload, readContents } from '../store-contents.ts'

export interface TestStoreOptions {
  /** Opens an empty store. Its time must be its own clock plus `clockOffsetMs()`, asked for at every use. */
  open(options: { clockOffsetMs: () => number }): Promise<OpenedStore>
  /** Only these parts: for another way to the same store that has passed all of them. Default all. */
  readonly parts?: readonly SuitePart[]
}

export type SuitePart =
  | ('creating' | 'claiming' | 'queues' | 'leases' | 'commits' | 'operations' | 'inbox' | 'reading')
  | ('rules' | 'history' | 'records' | 'streams' | 'threads' | 'collecting' | 'moving' | 'owners' | 'payloads' | 'concurrency')

export interface OpenedStore {
  readonly store: Store
  /** Closes the store and opens it again over the same data; absent where nothing outlives the store. */
  reopen?(): Promise<Store>
  /** Ends the test: closes what is open and removes the data. */
  close(): Promise<void>
}

/** Registers a test that has a store of its own. */
export type StoreTest = (name: string, body: (scene: Scene) => Promise<void>) => void

export type Ok = Extract<Committed, { ok: true }>

export function sceneTest(options: TestStoreOptions): StoreTest {
  return (name, body) =>
    it(name, { timeout: 300_000 }, async () => {
      const clock = { offsetMs: 0 }
      const opened = await options.open({ clockOffsetMs: () => clock.offsetMs })
      try {
        await opened.store.migrate()
        await body(new Scene(opened, clock))
      } finally {
        await opened.close()
      }
    })
}

/** One store, a clock to move, and short words for the acts that every topic needs. */
export class Scene {
  store: Store
  readonly canReopen: boolean
  private readonly opened: OpenedStore
  private readonly clock: { offsetMs: number }
  private readonly names = {
    owners: new Set<string>(['']),
    threadIds: new Set<string>(),
    runIds: new Set<string>(),
    operationKeys: new Set<string>(),
  }

  constructor(opened: OpenedStore, clock: { offsetMs: number }) {
    this.opened = opened
    this.clock = clock
    this.store = opened.store
    this.canReopen = opened.reopen !== undefined
  }

  advance(ms: number): void {
    this.clock.offsetMs += ms
  }

  async reopen(): Promise<void> {
    invariant(this.opened.reopen !== undefined, 'this store cannot be reopened')
    this.store = await this.opened.reopen()
    await this.store.migrate()
  }

  /** Writes one change and returns the answer, whatever it is. */
  async commit(change: Change): Promise<Committed> {
    const [answer] = await this.commitAll([change])
    invariant(answer !== undefined, 'commit gave no answer')
    return answer
  }

  async commitAll(changes: readonly Change[]): Promise<readonly Committed[]> {
    for (const change of changes) {
      this.names.owners.add(change.owner)
      this.names.threadIds.add(change.threadId)
      if (change.runId !== null) this.names.runIds.add(change.runId)
      if (change.operation !== undefined) this.names.operationKeys.add(change.operation.key)
      for (const create of change.creates ?? []) {
        this.names.owners.add(create.owner)
        this.names.threadIds.add(create.threadId)
        this.names.runIds.add(create.id)
      }
      for (const { owner, runId } of change.delivers ?? []) {
        this.names.owners.add(owner)
        this.names.runIds.add(runId)
      }
    }
    return this.store.commit(changes)
  }

  async create(fields: Partial<NewRun> & { readonly id: string }): Promise<Run> {
    const create = newRun(fields)
    const answer = ok(await this.commit(change({ owner: create.owner, threadId: create.threadId, creates: [create] })))
    const run = answer.created[0]?.run
    invariant(run !== undefined, 'the new run is missing from the answer')
    return run
  }

  /** Creates a run and claims it. Nothing else may be claimable. */
  async createAndClaim(fields: Partial<NewRun> & { readonly id: string }, request: Partial<ClaimRequest> = {}): Promise<Claim> {
    await this.create(fields)
    return this.claimOne(request)
  }

  async claim(request: Partial<ClaimRequest> = {}): Promise<readonly Claim[]> {
    return this.store.claim(claimRequest(request))
  }

  async claimOne(request: Partial<ClaimRequest> = {}): Promise<Claim> {
    const claims = await this.claim(request)
    invariant(claims.length === 1, `expected one run to be claimable, found ${claims.length}`)
    return claims[0] as Claim
  }

  async claimedIds(request: Partial<ClaimRequest> = {}): Promise<string[]> {
    return (await this.claim(request)).map(({ run }) => run.id)
  }

  /** Writes under the claim's lease and expects success. */
  async write(claim: Claim, fields: Partial<Change> = {}): Promise<Ok> {
    return ok(await this.commit(leased(claim, fields)))
  }

  /** Lets the holder end its run or put it away. */
  async leave(claim: Claim, status: RunStatus, run: RunChange = {}): Promise<Ok> {
    return this.write(claim, { events: [event('run_paused')], run: { ...run, status } })
  }

  /** Lets another worker take the run, so that the claim is stale. */
  async takeOver(claim: Claim, request: Partial<ClaimRequest> = {}): Promise<Claim> {
    this.advance(1_000_000)
    const claims = await this.claim(request)
    const taken = claims.find(({ run }) => run.id === claim.run.id && run.owner === claim.run.owner)
    invariant(taken !== undefined, `run ${claim.run.id} was not taken over`)
    return taken
  }

  async deliver(message: Partial<Delivery> & { readonly runId: string }) {
    return this.store.deliver(newMessage(message))
  }

  async run(runId: string, owner = ''): Promise<Run> {
    const run = await this.store.readRun({ owner, runId })
    invariant(run !== null, `run ${runId} is missing`)
    return run
  }

  async thread(threadId: string, owner = ''): Promise<Thread> {
    const thread = await this.store.readThread({ owner, threadId })
    invariant(thread !== null, `thread ${threadId} is missing`)
    return thread
  }

  async operation(key: string, owner = ''): Promise<Operation> {
    const operation = await this.store.readOperation({ owner, key })
    invariant(operation !== null, `operation ${key} is missing`)
    return operation
  }

  /** Everything that can be read under the names this scene has used. */
  async contents() {
    return readContents(this.store, this.names)
  }
}

export function event(type: EventType, fields: Partial<NewEvent> = {}): NewEvent {
  return {
    type,
    step: null,
    count: 0,
    attempt: 0,
    at: 1_700_000_000_000,
    durationMs: null,
    payload: null,
    patch: null,
    ...fields,
  }
}

export function stepCompleted(step: string, payload: Payload = '1'): NewEvent {
  return event('step_completed', { step, count: 1, attempt: 1, durationMs: 5, payload })
}

/** Two chunks of the first attempt of step `a` for the stream `tokens`. */
export function chunks(fields: Partial<NewChunks> = {}): NewChunks {
  return { stream: 'tokens', tape: 1, step: 'a', count: 1, attempt: 1, size: 2, payload: '["x","y"]', ...fields }
}

/** What says that the first attempt of step `a` is void. */
export function abort(fields: Partial<NewChunks> = {}): NewChunks {
  return chunks({ size: 1, payload: null, ...fields })
}

export function newRun(fields: Partial<NewRun> & { readonly id: string }): NewRun {
  return {
    ...{ owner: '', threadId: fields.id, workflow: 'report', version: 1, queue: 'default', priority: 0, fingerprint: 'f' },
    ...{ due: { inMs: 0 }, ifBusy: 'queue', queued: event('run_queued', { payload: `"input of ${fields.id}"` }) },
    ...fields,
  }
}

export function newMessage(fields: Partial<Delivery> & { readonly runId: string }): Delivery {
  return { owner: '', kind: 'signal', name: null, payload: null, ...fields }
}

/** A change without a condition; the fields say what it does. */
export function change(fields: Partial<Change> & { readonly threadId: string }): Change {
  const isCheckpoint = (fields.events?.length ?? 0) > 0
  return { owner: '', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint, ...fields }
}

export function leased({ run, leaseId }: Claim, fields: Partial<Change> = {}): Change {
  const { owner, threadId, id, epoch } = run
  return change({ owner, threadId, runId: id, guard: { kind: 'lease', epoch, leaseId }, ...fields })
}

export function guarded(run: Run, guard: Partial<Extract<Guard, { kind: 'run' }>>, fields: Partial<Change> = {}): Change {
  const { owner, threadId, id, epoch, status } = run
  return change({ owner, threadId, runId: id, guard: { kind: 'run', epoch, status, ...guard }, ...fields })
}

export function edit(threadId: string, headSeq: number, fields: Partial<Change> = {}): Change {
  return change({ threadId, guard: { kind: 'thread', headSeq }, events: [event('state_updated', { patch: '[]' })], ...fields })
}

export function claimRequest(fields: Partial<ClaimRequest> = {}): ClaimRequest {
  return { workerId: 'worker-1', leaseMs: 10_000, limit: 10_000, workflows: [{ name: 'report', version: 1 }], ...fields }
}

export function ok(answer: Committed): Ok {
  invariant(answer.ok, `expected the change to be written; it was refused with ${answer.ok ? '' : answer.refusal}`)
  return answer
}

export function refusalOf(answer: Committed): Refusal | 'none' {
  return answer.ok ? 'none' : answer.refusal
}

/** The code with which a call is refused by throwing. */
export async function codeThrownBy(call: () => Promise<unknown>): Promise<string> {
  try {
    await call()
  } catch (error) {
    if (error instanceof HoldfastError) return error.code
    throw error
  }
  return 'none'
}

export function payloadsOf(items: readonly { readonly payload: Payload | null }[]): (string | null)[] {
  return items.map(({ payload }) => plainPayload(payload))
}
