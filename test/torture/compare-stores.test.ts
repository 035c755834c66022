import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { compareManyActs } from './compare-many-acts.ts'

test('random acts get the same answers from memory, sqlite, postgres and redis, and leave the same behind', {
  timeout: patience(600_000),
}, async () => {
  const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
  const operations = 4_000
  const passing: string[] = []
  const { kinds } = await compareManyActs({ operations, seed, onPassing: (difference) => passing.push(difference) })
  console.log(
    [`stores: ${operations} acts on all four, ${kinds} kinds of answers, no lasting difference, seed ${seed}`, ...passing].join(
      '\n',
    ),
  )
  expect(kinds).toBeGreaterThan(40)
})
