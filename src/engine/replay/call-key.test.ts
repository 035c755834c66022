import { describe, expect, it } from 'vitest'
import { callKey, keyOfRecord, kindOf, lastPartOf, parseCallKey, pathOf, scopeOfUpdate, updateKey } from './call-key.ts'

describe('a call key', () => {
  it.each([
    ['step:gather/fetch#2', { kind: 'step', path: 'gather/fetch', count: 2 }],
    ['signal:go#1', { kind: 'signal', path: 'go', count: 1 }],
    // A name may contain the marks that separate the parts: the kind has no colon, the count no hash.
    ['step:a:b#c#3', { kind: 'step', path: 'a:b#c', count: 3 }],
  ] as const)('%s is made of its parts, and can be taken apart again', (key, parts) => {
    expect(callKey(parts.kind, parts.path, parts.count)).toBe(key)
    expect(keyOfRecord(parts.kind, { step: parts.path, count: parts.count })).toBe(key)
    expect(parseCallKey(key)).toEqual(parts)
    expect([kindOf(key), pathOf(key)]).toEqual([parts.kind, parts.path])
  })

  it('has a path of which the last part is the name of the call', () => {
    expect([lastPartOf('gather/fetch'), lastPartOf('fetch')]).toEqual(['fetch', 'fetch'])
  })
})

describe('the key of an update', () => {
  it.each([
    ['gather', 'gather#2', 'gather'],
    [null, '#2', ''],
  ])('in scope %s is %s', (scope, key, found) => {
    expect(updateKey(scope, 2)).toBe(key)
    expect(scopeOfUpdate(key)).toBe(found)
  })
})
