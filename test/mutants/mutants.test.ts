import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { mutants } from './mutants.ts'
import { tryMutant } from './try-mutant.ts'

const root = join(import.meta.dirname, '../..')

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
  const stale = mutants.flatMap(({ name, edits }) =>
    edits.filter(({ file, find }) => readFileSync(join(root, 'src', file), 'utf8').split(find).length !== 2).map(() => name),
  )
  expect(stale).toEqual([])
  expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
  expect(mutants.length).toBeGreaterThanOrEqual(12)
})
