import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { mutants } from './mutants.ts'
import { tryMutant } from './try-mutant.ts'

// The short form: the mutants that matter most, each against the one test that must see it. `node test/mutants/main.ts` tries all.

test.each(mutants.filter(({ isRequired }) => isRequired === true))(
  'the tests see it when $wrong',
  { timeout: patience(120_000) },
  async (mutant) => {
    const verdict = await tryMutant(mutant)
    expect(verdict, JSON.stringify(verdict)).toMatchObject({ kind: 'caught' })
  },
)

test('every mutant names sources and tests that are there', () => {
  expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
  expect(mutants.length).toBeGreaterThanOrEqual(12)
})
