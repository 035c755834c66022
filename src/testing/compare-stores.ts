import { codeOf } from '../model/errors.ts'
import type { Store } from '../store/store.ts'
import type { Act } from './act.ts'
import { createRandom } from './random.ts'
import { RandomActs } from './random-acts.ts'
import { readContents } from './store-contents.ts'
import { type Difference, differenceOf } from './store-difference.ts'
import type { TestClock } from './test-clock.ts'

export interface CompareOptions {
  /** The same seed gives the same acts. */
  readonly seed: number
  /** How many acts to perform. */
  readonly operations: number
  /** The clock that all stores were opened with; moved by at least ten seconds at every act. */
  readonly clock: TestClock
  /** Acts after which everything readable is compared. Default 100. */
  readonly checkEvery?: number
}

export interface Comparison {
  readonly operations: number
  /** How often each act was performed, by act and outcome: `step ok`, `step lease_lost`. */
  readonly kinds: Record<string, number>
}

/**
 * Performs the same random acts on two or more empty stores and compares every answer with that of the first, and from time to
 * time everything that can be read. Throws at the first difference, with the seed and the last acts. What may differ is listed
 * in store-difference.ts.
 */
export async function compareStores(
  reference: Store,
  candidates: Store | readonly Store[],
  options: CompareOptions,
): Promise<Comparison> {
  const { seed, operations, clock, checkEvery = 100 } = options
  const stores = [reference, candidates].flat()
  const random = createRandom(seed)
  const acts = new RandomActs(random, stores, clock)
  const kinds: Record<string, number> = {}
  const trace: Act[] = []

  function check([expected, ...found]: readonly unknown[], doing: string): void {
    for (const [index, answer] of found.entries()) {
      const difference = differenceOf(expected, answer, (leaseId) => acts.nameOf(leaseId))
      if (difference === null) continue
      throw new Error(describeDifference(difference, { seed, doing, trace, kind: stores[index + 1]?.kind ?? '' }))
    }
  }

  async function compareContents(): Promise<void> {
    check(await Promise.all(stores.map((store) => readContents(store, acts.names))), 'comparing all contents')
  }

  for (let number = 1; number <= operations; number++) {
    clock.advance(random.chance(0.03) ? 400_000 : random.integer(1, 2) * 10_000)
    const act = await acts.nextAct()
    trace.push(act)
    // At once, so that their clocks say nearly the same.
    const answers = await Promise.all(stores.map((store, side) => answerOf(act, store, side)))
    if (!answers.some(isError)) act.settle?.(answers)
    check(answers, `act ${number}, ${act.kind}`)
    for (const outcome of outcomesOf(answers[0])) kinds[`${act.kind} ${outcome}`] = (kinds[`${act.kind} ${outcome}`] ?? 0) + 1
    if (number % checkEvery === 0) await compareContents()
  }
  await compareContents()
  return { operations, kinds }
}

async function answerOf(act: Act, store: Store, side: number): Promise<unknown> {
  try {
    return await act.perform(store, side)
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined) throw error
    return { error: code }
  }
}

function isError(answer: unknown): answer is { readonly error: string } {
  return typeof answer === 'object' && answer !== null && 'error' in answer
}

/** One per change for commits; otherwise whether there was something. */
function outcomesOf(answer: unknown): string[] {
  if (isError(answer)) return [answer.error]
  if (Array.isArray(answer)) {
    const isBatch = answer.length > 0 && answer.every((one) => typeof one === 'object' && one !== null && 'ok' in one)
    return isBatch ? answer.flatMap(outcomesOf) : [answer.length > 0 ? 'some' : 'none']
  }
  if (typeof answer === 'object' && answer !== null && 'ok' in answer) {
    return [answer.ok === true ? 'ok' : 'refusal' in answer ? String(answer.refusal) : 'refused']
  }
  return [answer === null || answer === false ? 'none' : 'some']
}

function describeDifference(
  { path, reference, candidate }: Difference,
  where: { seed: number; doing: string; trace: readonly Act[]; kind: string },
): string {
  const tail = where.trace.slice(-12).map(({ kind, what }) => `  ${kind} ${show(what)}`)
  return [
    `The stores differ at ${path || 'the answer'} while ${where.doing}, seed ${where.seed}.`,
    `  reference: ${show(reference)}`,
    `  ${where.kind}: ${show(candidate)}`,
    'The last acts:',
    ...tail,
  ].join('\n')
}

function show(value: unknown): string {
  const text = JSON.stringify(value, (_, part) =>
    part instanceof Uint8Array ? `bytes:${Buffer.from(part).toString('hex')}` : part,
  )
  return text === undefined ? 'undefined' : text.length > 1_500 ? `${text.slice(0, 1_500)}…` : text
}
