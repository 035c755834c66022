import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checkId, checkOwner, checkStepName, formatCheckpoint, parseCheckpoint } from './ids.ts'

const refusal = expect.objectContaining({ code: 'invalid_id' })

describe('ids', () => {
  it.each([
    'a',
    "o'brien",
    '100%',
    '_',
    '*',
    'a/b',
    'x:y',
    'é',
    'e\u0301',
    '\u202eabc',
    '\u200b',
    '😀',
    'a'.repeat(512),
    'é'.repeat(256),
    '__proto__',
  ])('takes %j as plain data', (id) => expect(checkId('run id', id)).toBe(id))

  it.each([
    '',
    'a\nb',
    'a\0',
    '\x7f',
    '\x9f',
    '\ud800',
    'a\udc00b',
    '\ud83d',
    'a'.repeat(513),
    'é'.repeat(257),
    '😀'.repeat(129),
    'a'.repeat(10_000),
    1,
    null,
    undefined,
    {},
  ])('refuses %j', (id) => expect(() => checkId('run id', id)).toThrow(refusal))

  it('says which kind, why and what is allowed, without repeating a huge id', () => {
    expect(() => checkId('signal name', 'a\nb')).toThrow(/signal name "a\\nb" .*control character at position 1.*1 to 512 bytes/)
    try {
      checkId('run id', 'x'.repeat(100_000))
    } catch (error) {
      expect((error as Error).message.length).toBeLessThan(400)
    }
  })

  it('keeps step names clear of scopes and items', () => {
    expect(checkStepName('send #1: a@b')).toBe('send #1: a@b')
    expect(() => checkStepName('a/b')).toThrow(refusal)
    expect(() => checkStepName('a[0]')).toThrow(refusal)
    expect(() => checkStepName('')).toThrow(refusal)
  })

  it('has an empty owner', () => {
    expect(checkOwner('')).toBe('')
    expect(() => checkOwner('a\n')).toThrow(refusal)
    expect(() => checkOwner(undefined)).toThrow(refusal)
  })

  it('splits a checkpoint at its last @', () => {
    expect(parseCheckpoint('a@b@12')).toEqual({ threadId: 'a@b', seq: 12 })
    for (const bad of [
      'a',
      'a@',
      '@1',
      'a@-1',
      'a@1.5',
      'a@01',
      'a@1e3',
      'a@ 1',
      'a@99999999999999999999',
      'a\n@1',
      5,
      undefined,
    ]) {
      expect(() => parseCheckpoint(bad), String(bad)).toThrow(refusal)
    }
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }), fc.nat(), (threadId, seq) => {
        let id: string
        try {
          id = checkId('thread id', threadId)
        } catch {
          return
        }
        expect(parseCheckpoint(formatCheckpoint(id, seq))).toEqual({ threadId: id, seq })
      }),
    )
  })
})
