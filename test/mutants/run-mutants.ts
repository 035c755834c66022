import { type Mutant, mutants } from './mutants.ts'
import { isGreenWithoutFault, tryMutant, type Verdict } from './try-mutant.ts'

/** Tries mutants one after another, says what came of each, and returns the sentences that must not be. */
export async function runMutants(
  names: readonly string[],
  { say = console.log, isTalkative = false }: { say?: (line: string) => void; isTalkative?: boolean } = {},
): Promise<string[]> {
  const unknown = names.filter((name) => mutants.every((mutant) => mutant.name !== name))
  if (unknown.length > 0) return [`there is no mutant ${unknown.join(', ')}`]
  const chosen = names.length === 0 ? mutants : mutants.filter(({ name }) => names.includes(name))
  const problems: string[] = []
  for (const test of distinctTests(chosen)) {
    if (!(await isGreenWithoutFault(test))) problems.push(`"${test.name}" of ${test.file} is red without a mutant`)
  }
  for (const mutant of chosen) {
    const startedAt = performance.now()
    const verdict = await tryMutant(mutant)
    say(`${mutant.name.padEnd(24)} ${describe(verdict)}  (${((performance.now() - startedAt) / 1000).toFixed(1)} s)`)
    if (isTalkative && verdict.kind === 'caught') say(verdict.because.slice(0, 600))
    if (verdict.kind !== 'caught') problems.push(`mutant ${mutant.name} (${mutant.wrong}): ${describe(verdict)}`)
  }
  say(`${chosen.length} mutants, ${problems.length} problems`)
  return problems
}

function distinctTests(chosen: readonly Mutant[]): Mutant['test'][] {
  return [...new Map(chosen.map(({ test }) => [`${test.file} ${test.name}`, test])).values()]
}

function describe(verdict: Verdict): string {
  switch (verdict.kind) {
    case 'caught':
      return `caught by: ${verdict.by[0]}${verdict.by.length > 1 ? ` and ${verdict.by.length - 1} more` : ''}`
    case 'survived':
      return 'SURVIVED'
    case 'stale':
      return `STALE: ${verdict.why}`
  }
}
