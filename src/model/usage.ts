import { HoldfastError } from './errors.ts'
import { type OptionNames, refuseUnknownOptions, unknownName } from './known-options.ts'

/** What one call of a model or a paid service took. */
export interface Usage {
  readonly model?: string
  readonly inputTokens?: number
  readonly outputTokens?: number
  /** In whatever currency the budget is in. */
  readonly cost?: number
}

/** What a run has used so far, its children included. */
export interface UsageTotal {
  /** Steps, effects and children that were begun. */
  readonly steps: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly tokens: number
  readonly cost: number
  /** Time in execution; waiting does not count. Kept only where the budget limits it. */
  readonly wallMs: number
}

/** Limits of a run. Past one of them it pauses until `run.resume({ budget })`. */
export interface Budget {
  readonly steps?: number
  /** Input and output tokens together. */
  readonly tokens?: number
  readonly cost?: number
  /** Time in execution, in ms; waiting does not count. */
  readonly wallMs?: number
  /** How often one step may be called with one input: an agent that goes round in circles. */
  readonly repeats?: number
}

const budgetLimits = ['steps', 'tokens', 'cost', 'wallMs', 'repeats'] as const

export const noUsage: UsageTotal = { steps: 0, inputTokens: 0, outputTokens: 0, tokens: 0, cost: 0, wallMs: 0 }

export function addUsage(total: UsageTotal, used: Partial<UsageTotal>): UsageTotal {
  const { inputTokens = 0, outputTokens = 0, steps = 0, cost = 0, wallMs = 0 } = used
  return {
    steps: total.steps + steps,
    inputTokens: total.inputTokens + inputTokens,
    outputTokens: total.outputTokens + outputTokens,
    tokens: total.tokens + inputTokens + outputTokens,
    // Tenths of cents add up without the noise of binary fractions.
    cost: Math.round((total.cost + cost) * 1e9) / 1e9,
    wallMs: total.wallMs + wallMs,
  }
}

export function isNothing(usage: UsageTotal): boolean {
  return Object.values(usage).every((amount) => amount === 0)
}

/** What is in a total and not in an earlier one of the same run. */
export function usedSince(total: UsageTotal, earlier: UsageTotal): UsageTotal {
  const since = (what: keyof UsageTotal) => Math.max(0, total[what] - earlier[what])
  return {
    steps: since('steps'),
    inputTokens: since('inputTokens'),
    outputTokens: since('outputTokens'),
    tokens: since('tokens'),
    cost: Math.round(since('cost') * 1e9) / 1e9,
    wallMs: since('wallMs'),
  }
}

/** The first limit that a total is past, if any. */
export function exceeded(
  budget: Budget,
  used: UsageTotal,
): { what: 'steps' | 'tokens' | 'cost' | 'wallMs'; limit: number; used: number } | null {
  for (const what of ['steps', 'tokens', 'cost', 'wallMs'] as const) {
    const limit = budget[what]
    if (limit !== undefined && used[what] > limit) return { what, limit, used: used[what] }
  }
  return null
}

/** What is left of a budget, for a child. */
export function leftOf(budget: Budget, used: UsageTotal): Budget {
  const left: Record<string, number> = {}
  for (const what of ['steps', 'tokens', 'cost', 'wallMs'] as const) {
    const limit = budget[what]
    if (limit !== undefined) left[what] = Math.max(0, limit - used[what])
  }
  return left
}

/** What is left once others have been given these. */
export function without(budget: Budget, given: Iterable<Budget>): Budget {
  const left: Record<string, number> = { ...budget }
  for (const one of given) {
    for (const [what, limit] of Object.entries(left)) left[what] = Math.max(0, limit - (one[what as keyof Budget] ?? 0))
  }
  return left
}

/** An equal part of each limit; whole numbers, except of the cost. */
export function partOf(budget: Budget, parts: number): Budget {
  const part = (what: string, limit: number) => {
    const unit = what === 'cost' ? 1e9 : 1
    return Math.floor((limit / parts) * unit) / unit
  }
  return Object.fromEntries(Object.entries(budget).map(([what, limit]) => [what, part(what, limit)]))
}

/** Of each limit the lower one. */
export function lower(a: Budget, b: Budget): Budget {
  const both: Record<string, number> = {}
  for (const what of budgetLimits) {
    const limits = [a[what], b[what]].filter((limit) => limit !== undefined)
    if (limits.length > 0) both[what] = Math.min(...limits)
  }
  return both
}

const usageNames: OptionNames<Usage> = { model: true, inputTokens: true, outputTokens: true, cost: true }

/** `what` names the call that books it. */
export function refuseUnknownUsage(what: string, usage: Usage): void {
  refuseUnknownOptions(what, usage, usageNames)
}

export function checkUsage(usage: Usage): Usage {
  const { model, inputTokens, outputTokens, cost } = usage ?? {}
  for (const [name, amount] of Object.entries({ inputTokens, outputTokens, cost })) {
    if (amount !== undefined && !(Number.isFinite(amount) && amount >= 0))
      throw new HoldfastError('invalid_input', `${name} of a usage is ${String(amount)}; it must be a number from 0.`)
  }
  return {
    ...(model !== undefined && { model: String(model) }),
    ...(inputTokens !== undefined && { inputTokens }),
    ...(outputTokens !== undefined && { outputTokens }),
    ...(cost !== undefined && { cost }),
  }
}

export function checkBudget(budget: Budget, of: string): Budget {
  for (const [name, limit] of Object.entries(budget ?? {})) {
    if (!(budgetLimits as readonly string[]).includes(name))
      throw unknownName(`The budget of ${of} has no limit "${name}".`, name, budgetLimits)
    if (!(typeof limit === 'number' && limit >= 0))
      throw new HoldfastError('invalid_input', `${name} in the budget of ${of} is ${String(limit)}; it must be a number from 0.`)
  }
  return budget
}
