/**
 * What the function has seen so far, in one short word: two executions that saw the same have the same one. What it saw of the state is left
 * out: another attempt of a section, and what is done again after an undo, begin with what is kept, which judge-reads looks at. So is what became of a wait
 * with a limit, which is tried again with a section whose failure names no cause, and who won a race that nothing
 * on record decides.
 */
export function digest(seen: string, value: unknown): string {
  const text = `${seen}|${JSON.stringify(value, withoutChance) ?? 'undefined'}`
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  return (hash >>> 0).toString(36)
}

const chances = new Set(['looked', 'state', 'byChance', 'waited'])

function withoutChance(key: string, value: unknown): unknown {
  return chances.has(key) ? undefined : value
}

/**
 * What a program's function has changed of the state, in order; what was done in parallel stands side by side. Who won a race by chance may
 * be another on a replay: what came after it is recorded then, and stands before what the new winner does.
 */
export type Trace = (string | { readonly beside: readonly Trace[]; readonly isByChance?: true })[]

/** What node `n` adds to the list. That of every third is long: a result that says it as well is kept without it. */
export function wordOf(n: string): string {
  return Number.parseInt(n, 10) % 3 === 1 ? `u${n} ${'word'.repeat(80)}` : `u${n}`
}

/** The node that added a word. */
export function nodeOfWord(word: string): string {
  return word.slice(1).split(' ', 1)[0] as string
}

/** What a call gives to the function. `n` names the node, and in a loop the turn. */
export interface CallValue {
  readonly n: string
  /** The run it was made in. */
  readonly run?: string
  /** What the function had seen when the body ran. */
  readonly saw?: string
  /** What the body added to the state. */
  readonly said?: string
  /** What the body saw of the state. */
  readonly state?: string
  readonly how?: 'skipped' | 'fallback' | 'timeout' | 'default' | 'replaced'
  readonly value?: unknown
  /** By which fork, where it has another result than was made. */
  readonly by?: number
  /** What became of a wait that has a limit. */
  readonly waited?: Pick<CallValue, 'how' | 'value'>
}

/** What a program's function returns. */
export interface ProgramOutput {
  readonly value: unknown
  readonly trace: Trace
  readonly saw: string
}

/** What sections return: they are not entered again, so what they saw and did has to be in their results. */
export interface SectionValue extends CallValue {
  /** What the function had seen when the section began. Steps of a plan know nothing of each other, and have none. */
  readonly began?: string
  readonly trace: Trace
}

export interface ModelState {
  /** Each change by a program adds a word of its own. */
  readonly list: string[]
  /** Each edit by hand does. */
  readonly edits: string[]
  /** What plan steps returned, by step. */
  readonly [step: `p${number}`]: SectionValue
}

export function flatten(trace: Trace): string[] {
  return trace.flatMap((item) => (typeof item === 'string' ? [item] : item.beside.flatMap(flatten)))
}

/** The error of the program's own behind an error, by its node's number; or the code of one of Holdfast's that a program may meet. */
export function errorName(error: unknown): string | undefined {
  const found = new Set<unknown>()
  const queue = [error]
  let code: string | undefined
  while (queue.length > 0) {
    const next = queue.shift() as { message?: unknown; cause?: unknown; errors?: unknown[]; code?: unknown } | null | undefined
    if (next === null || typeof next !== 'object' || found.has(next)) continue
    found.add(next)
    const own = typeof next.message === 'string' ? /\bx(\d+)\b/.exec(next.message)?.[0] : undefined
    if (own !== undefined) return own
    if (next.code === 'timeout') code ??= 'timeout'
    // Of a Promise.any whose errors were not stored with it.
    if (next.message === 'All promises were rejected') code ??= 'any'
    queue.push(next.cause, ...(next.errors ?? []))
  }
  return code
}
