import { isDeepStrictEqual } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createCodec } from './codec.ts'
import { isReadOnly, makeReadOnly } from './read-only.ts'

const codec = createCodec()
const values = (): [string, object, (value: never) => unknown][] => [
  ['a Map', new Map([['a', 1]]), (map: Map<string, number>) => map.set('b', 2)],
  ['a Map, by delete', new Map([['a', 1]]), (map: Map<string, number>) => map.delete('a')],
  ['a Map, by clear', new Map([['a', 1]]), (map: Map<string, number>) => map.clear()],
  ['a Set', new Set([1]), (set: Set<number>) => set.add(2)],
  ['a Set, by delete', new Set([1]), (set: Set<number>) => set.delete(1)],
  ['a Date', new Date(5), (date: Date) => date.setFullYear(2000)],
  ['a Date, by setTime', new Date(5), (date: Date) => date.setTime(7)],
]

describe('what is read-only', () => {
  it.each(values())('refuses changes in place: %s', (_, value, change) => {
    const before = codec.encode(value)
    makeReadOnly(value)
    expect(isReadOnly(value)).toBe(true)
    expect(() => change(value as never)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    expect(codec.encode(value)).toEqual(before)
  })

  it.each(values())('is compared, cloned and copied like any other: %s', (_, value, change) => {
    const plain = structuredClone(value)
    makeReadOnly(value)
    expect(isDeepStrictEqual(value, plain)).toBe(true)
    expect(value).toStrictEqual(plain)
    const clone = structuredClone(value)
    const copy = new (value.constructor as new (from: object) => object)(value)
    for (const free of [clone, copy]) {
      expect(isDeepStrictEqual(free, plain)).toBe(true)
      change(free as never)
      expect(isDeepStrictEqual(free, plain)).toBe(false)
    }
    expect(isDeepStrictEqual(value, plain)).toBe(true)
  })

  it('is not everything that is frozen', () => {
    expect(isReadOnly(Object.freeze(new Map()))).toBe(false)
    expect(() => codec.encode(Object.assign(new Map(), { set: 1 }))).toThrow(
      expect.objectContaining({ code: 'value_not_storable' }),
    )
  })
})
