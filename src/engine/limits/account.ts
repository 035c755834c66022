import { HoldfastError } from '../../model/errors.ts'
import { addUsage, type Budget, exceeded, leftOf, type Usage, type UsageTotal, without } from '../../model/usage.ts'
import { type AccountOnTape, repeatKey } from './account-on-tape.ts'

/** How often one step is called with one input before it is worth a line in the log. */
const suspiciousRepeats = 10

/** What a run has used, what it has set aside, and what it may use. */
export class Account {
  #limits: Budget
  /** Whether anything is limited: a run without a budget pays for nothing here but a count. */
  isLimited: boolean
  #used: UsageTotal
  #steps = 0
  #reservedTokens = 0
  #reservedCost = 0
  readonly #quiet: { readonly waitedMs: number }
  #since = performance.now()
  #waitedBefore = 0
  #repeats: Map<string, number> | undefined
  /** What open children were given, by their calls. */
  #grants: Map<string, Budget> | undefined

  /** `quiet.waitedMs`: how long the run has waited while it was held, which is no time in execution. */
  constructor(options: { limits: Budget; used: UsageTotal; quiet: { readonly waitedMs: number } } & Partial<AccountOnTape>) {
    this.#quiet = options.quiet
    this.#limits = options.limits
    this.isLimited = Object.keys(options.limits).length > 0
    this.#used = options.used
    this.#repeats = options.repeats
    this.#grants = options.grants
  }

  get limits(): Budget {
    return this.#limits
  }

  get used(): UsageTotal {
    return { ...this.#used, steps: this.#used.steps + this.#steps }
  }

  /** Time in execution since this one began. */
  get sliceMs(): number {
    return Math.round(performance.now() - this.#since - (this.#quiet.waitedMs - this.#waitedBefore))
  }

  /** Ms of execution until the time limit is reached. */
  get leftMs(): number {
    return (this.#limits.wallMs ?? Number.POSITIVE_INFINITY) - this.#used.wallMs - this.sliceMs
  }

  get left(): Budget {
    return leftOf(this.#limits, this.#now())
  }

  /** What a child may be given: what is left, and not given to others. */
  leftFor(call: string): Budget {
    const others = [...(this.#grants ?? [])].filter(([key]) => key !== call).map(([, budget]) => budget)
    return without(this.left, others)
  }

  grant(call: string, budget: Budget): void {
    this.#grants ??= new Map()
    this.#grants.set(call, budget)
  }

  /** The child has ended: what it used is booked, and the rest is free. */
  endGrant(call: string): void {
    this.#grants?.delete(call)
  }

  /** Books the time in execution so far, where it is limited; what comes is counted anew. */
  bookSlice(): void {
    if (this.#limits.wallMs === undefined) return
    this.#used = addUsage(this.#used, { wallMs: this.sliceMs })
    this.#since = performance.now()
    this.#waitedBefore = this.#quiet.waitedMs
  }

  add(used: Usage | Partial<UsageTotal>): void {
    this.#used = addUsage(this.#used, used)
    const { inputTokens = 0, outputTokens = 0, cost = 0 } = used
    this.#reservedTokens = Math.max(0, this.#reservedTokens - inputTokens - outputTokens)
    this.#reservedCost = Math.max(0, this.#reservedCost - cost)
  }

  countStep(): void {
    this.#steps++
  }

  /** A step is called with an input. Says how often it was, where that is past the limit or begins to look like a circle. */
  countRepeat(path: string, inputFingerprint: string): { count: number; isOver: boolean } | null {
    const key = repeatKey(path, inputFingerprint)
    this.#repeats ??= new Map()
    const count = (this.#repeats.get(key) ?? 0) + 1
    this.#repeats.set(key, count)
    const isOver = count > (this.#limits.repeats ?? Number.POSITIVE_INFINITY)
    return isOver || count === suspiciousRepeats ? { count, isOver } : null
  }

  reserve(amount: { tokens?: number; cost?: number }): void {
    this.#reservedTokens += amount.tokens ?? 0
    this.#reservedCost += amount.cost ?? 0
  }

  /** Whether this much more would go past the budget, with what others have set aside. */
  wouldExceed({ tokens = 0, cost = 0 }: { tokens?: number; cost?: number }): boolean {
    const more = { inputTokens: tokens + this.#reservedTokens, cost: cost + this.#reservedCost }
    return exceeded(this.#limits, addUsage(this.#now(), more)) !== null
  }

  raise(budget: Budget): void {
    this.#limits = { ...this.#limits, ...budget }
    this.isLimited = true
  }

  over() {
    return this.isLimited ? exceeded(this.#limits, this.#now()) : null
  }

  #now(): UsageTotal {
    return this.#limits.wallMs === undefined ? this.used : addUsage(this.used, { wallMs: this.sliceMs })
  }
}

/** A limit that is passed, or would be by what is asked for. */
export interface OverBudget {
  readonly what: string
  readonly limit: number
  readonly used: number
  readonly asked?: number
}

export function budgetExceeded(runId: string, over: OverBudget): HoldfastError {
  const { what, limit, used, asked } = over
  return new HoldfastError(
    'budget_exceeded',
    `Run "${runId}" has used ${used} ${what === 'wallMs' ? 'ms' : what} of the ${limit} in its budget${asked === undefined ? '' : `, asks for ${asked} more,`} and is paused. ` +
      `run.resume({ budget }) with more ${what} continues it; run.cancel() ends it.`,
    { details: { runId, ...over } },
  )
}
