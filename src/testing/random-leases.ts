import type { Change, Committed } from '../store/change.ts'
import type { Claim, Store } from '../store/store.ts'
import type { BySide } from './act.ts'
import type { Random } from './random.ts'

export interface Lease {
  readonly owner: string
  readonly runId: string
  readonly threadId: string
  readonly epoch: number
  readonly leaseIds: BySide<string>
  /** A commit has asked for a longer lease. */
  isExtended: boolean
}

/** The leases that were granted: those that are held, and the last that no longer are. */
export class RandomLeases {
  held: Lease[] = []
  stale: Lease[] = []
  private readonly random: Random
  private readonly reference: Store
  private readonly leaseNames = new Map<string, string>()

  constructor(random: Random, reference: Store) {
    this.random = random
    this.reference = reference
  }

  nameOf(leaseId: string): string {
    return this.leaseNames.get(leaseId) ?? leaseId
  }

  /** Called before the answers are compared, so that the lease ids in them have names. */
  takeLeases(answers: BySide<readonly Claim[]>): void {
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
  forgetLease({ guard, run }: Change, answer: Committed | undefined): void {
    if (guard.kind !== 'lease' || answer === undefined) return
    const isLeft = answer.ok && run?.status !== undefined && run.status !== 'running'
    if (!isLeft && (answer.ok || answer.refusal !== 'lease_lost')) return
    const [left, kept] = partition(this.held, ({ epoch, leaseIds }) => epoch === guard.epoch && leaseIds[0] === guard.leaseId)
    this.stale.push(...left)
    this.held = kept
  }

  lease(): Lease | undefined {
    const from = this.stale.length > 0 && this.random.chance(0.08) ? this.stale : this.held
    return from.length === 0 ? undefined : this.random.pick(from)
  }

  /** What a holder says it has seen: mostly what is there or less, now and then more than that. */
  async known({ owner, threadId }: Lease): Promise<{ writtenSeq?: number }> {
    const { random } = this
    if (random.chance(0.4)) return {}
    const further = random.chance(0.9) ? random.pick([0, 0, 0, -1, -7]) : random.pick([1, 2, 9])
    const thread = await this.reference.readThread({ owner, threadId })
    return { writtenSeq: Math.max(0, (thread?.writtenSeq ?? 0) + further) }
  }
}

function partition<Item>(items: readonly Item[], belongs: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(belongs), items.filter((item) => !belongs(item))]
}
