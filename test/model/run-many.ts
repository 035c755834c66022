import { patience } from '../patience.ts'
import type { Case } from './case.ts'
import { generateCase } from './generate.ts'
import { apart, type StoreName } from './grounds.ts'
import { judge, type Violation } from './oracle.ts'
import { type Observation, runCase } from './run-case.ts'

export interface Finding {
  readonly given: Case
  readonly violations: readonly Violation[]
  readonly seen?: Observation
}

export interface RunManyOptions {
  readonly store: StoreName
  readonly programs: number
  readonly seed: number
  /** Cases that are played at the same time. */
  readonly lanes: number
  readonly url?: string
  readonly onCase?: (given: Case, seen: Observation | undefined, violations: readonly Violation[]) => void
  /** Ends early when so many cases went wrong. */
  readonly isEnough?: (found: number) => boolean
}

/** Plays the cases of so many seeds, and returns those in which something was wrong. */
export async function runMany(options: RunManyOptions): Promise<Finding[]> {
  const findings: Finding[] = []
  let next = 0
  const lane = async (number: number) => {
    const url = options.url && apart(options.url, `model_${process.pid}_${number}`)
    while (next < options.programs && options.isEnough?.(findings.length) !== true) {
      const given = generateCase(options.seed + next++, { store: options.store })
      const { violations, seen } = await tryCase(given, url)
      options.onCase?.(given, seen, violations)
      if (violations.length > 0) findings.push({ given, violations, ...(seen !== undefined && { seen }) })
    }
  }
  await Promise.all(Array.from({ length: options.lanes }, (_, number) => lane(number)))
  return findings
}

/** Plays a case and judges it. What the machine itself throws is something wrong, too. */
export async function tryCase(given: Case, url?: string): Promise<{ violations: Violation[]; seen?: Observation }> {
  const progress = { phase: '' }
  try {
    const seen = await within(patience(120_000), progress, runCase(given, { progress, ...(url !== undefined && { url }) }))
    return { violations: judge(given, seen), seen }
  } catch (error) {
    return { violations: [{ rule: 'broken', what: String((error as Error).stack) }] }
  }
}

async function within<T>(ms: number, progress: { phase: string }, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the case did not come to its end within ${ms} ms: ${progress.phase}`)), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
