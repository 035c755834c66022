import { describe, expect, it } from 'vitest'
import { mergePatch } from './merge-patch.ts'

describe('mergePatch', () => {
  it('merges objects key by key, replaces everything else, and deletes with null', () => {
    const base = { name: 'Alice', likes: { tea: true, milk: 1 }, tags: ['a', 'b'], gone: 1 }
    const patch = {
      likes: { milk: null, sugar: { lumps: 2, none: null } },
      tags: ['c'],
      gone: null,
      since: new Date(0),
      kept: undefined,
    }
    const merged = { name: 'Alice', likes: { tea: true, sugar: { lumps: 2 } }, tags: ['c'], since: new Date(0) }
    expect(mergePatch(base, patch)).toEqual(merged)
    expect(base).toEqual({ name: 'Alice', likes: { tea: true, milk: 1 }, tags: ['a', 'b'], gone: 1 })
  })

  it('begins with an object where there was none', () => {
    for (const base of [undefined, null, 3, 'text', [1], new Map()])
      expect(mergePatch(base, { a: { b: 1 } })).toEqual({ a: { b: 1 } })
  })

  it('takes __proto__, constructor and prototype for keys like any other', () => {
    const patch = JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}') as object
    const merged = mergePatch(mergePatch({}, patch), { a: 1 }) as Record<string, unknown>
    expect(Object.keys(merged).sort()).toEqual(['__proto__', 'a', 'constructor'])
    expect(Object.getPrototypeOf(merged)).toBe(Object.prototype)
    expect([({} as { polluted?: boolean }).polluted, (merged as { polluted?: boolean }).polluted]).toEqual([undefined, undefined])
    expect(mergePatch(merged, JSON.parse('{"__proto__":null}'))).not.toHaveProperty(['__proto__', 'polluted'])
    expect(Object.keys(mergePatch(merged, JSON.parse('{"__proto__":null}')) as object)).toEqual(['constructor', 'a'])
  })
})
