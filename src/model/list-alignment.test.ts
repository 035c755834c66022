import fc from 'fast-check'
import { expect, test } from 'vitest'
import { alignLists } from './list-alignment.ts'

const names = fc.array(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 9 })

/** Tries everything. */
function longest(before: readonly string[], after: readonly string[]): number {
  if (before.length === 0 || after.length === 0) return 0
  const rest = Math.max(longest(before.slice(1), after), longest(before, after.slice(1)))
  return before[0] === after[0] ? Math.max(rest, 1 + longest(before.slice(1), after.slice(1))) : rest
}

test('two short lists are aligned along their longest common sequence', () => {
  fc.assert(
    fc.property(names, names, (before, after) => {
      const pairs = alignLists(before, after)
      const isSound = pairs.every(([i, j], index) => {
        const [nextBefore, nextAfter] = pairs[index + 1] ?? [before.length, after.length]
        return before[i] === after[j] && i < nextBefore && j < nextAfter
      })
      expect(isSound).toBe(true)
      expect(pairs.length).toBe(longest(before, after))
    }),
    { numRuns: 300 },
  )
})

test('long lists are aligned without a table of all pairs', () => {
  const before = Array.from({ length: 50_000 }, (_, i) => `item ${i}`)
  const after = [...before.slice(20_000).map((name, i) => (i % 7 === 0 ? `new ${i}` : name)), ...before.slice(0, 20_000)]
  const pairs = alignLists(before, after)
  expect(pairs.length).toBe(after.slice(0, 30_000).filter((name) => name.startsWith('item')).length)
  expect(pairs.every(([i, j]) => before[i] === after[j])).toBe(true)
})
