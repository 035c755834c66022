import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createCodec } from './codec.ts'
import { summaryBytes, summaryOf } from './summary.ts'

test('a short value is written in full, on one line', () => {
  expect(summaryOf('two\nlines')).toBe('"two\\nlines"')
  expect(summaryOf({ order: '4711', lines: [1, -0, 5n, null, undefined], 'a key': true })).toBe(
    '{order: "4711", lines: [1, -0, 5n, null, undefined], "a key": true}',
  )
  expect(summaryOf(new Map([['a', new Set([1])]]))).toBe('Map ["a" => Set [1]]')
  expect(summaryOf([new Date(0), new Uint8Array(3), new Error('busy'), () => 1, Symbol('x'), new (class Own {})()])).toBe(
    '[1970-01-01T00:00:00.000Z, 3 bytes, "busy", a function, a symbol, an object]',
  )
})

test('a long one is cut, between characters, and deep ones are not followed for ever', () => {
  for (const value of ['x'.repeat(1e6), '€'.repeat(300), '😀'.repeat(300), 'a😀'.repeat(300), Array(1e6).fill(1)]) {
    const text = summaryOf(value)
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(summaryBytes)
    expect(Buffer.byteLength(text)).toBeGreaterThan(summaryBytes - 8)
    expect(text).toMatch(/…$/)
    expect(text).not.toContain('\ufffd')
  }
  const round: unknown[] = []
  round.push(round)
  expect(summaryOf(round)).toBe('[[[[[[[[…]]]]]]]]')
})

test('no code of the value is called', () => {
  const called: string[] = []
  const note = (name: string) => () => called.push(name)
  const value = Object.defineProperty({ toJSON: note('toJSON'), toString: note('toString') }, 'secret', {
    get: note('getter'),
    enumerable: true,
  })
  expect(summaryOf(value)).toBe('{toJSON: a function, toString: a function, secret: "…"}')
  expect(called).toEqual([])
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  expect(summaryOf([proxy])).toBe('an object')
})

test('a summary of any value can be stored', () => {
  const codec = createCodec()
  fc.assert(
    fc.property(
      fc.anything({ withBigInt: true, withDate: true, withMap: true, withSet: true, withNullPrototype: true }),
      (value) => {
        const text = summaryOf(value)
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(summaryBytes)
        expect(codec.decode(codec.encode(text))).toBe(text)
      },
    ),
  )
  expect(summaryOf('\ud800')).toBe('"\\ud800"')
})
