import { expect, test } from 'vitest'
import { compareKeys } from './record-query.ts'

test('keys are in the order of their bytes', () => {
  const keys = [
    '',
    'a',
    'ab',
    'b',
    'é',
    '\u{e000}',
    '\u{ffff}',
    '\u{1f600}',
    '\u{1f601}',
    '\u{10ffff}',
    'a\u{1f600}',
    'a\u{ffff}',
    '1',
    '10',
  ]
  for (const a of keys)
    for (const b of keys)
      expect([a, b, Math.sign(compareKeys(a, b))]).toEqual([a, b, Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b)))])
})
