import { describe, expect, expectTypeOf, it } from 'vitest'
import { migrateState, type StateDefinition, state } from './state.ts'

const chat = state({
  version: 3,
  initial: () => ({ messages: [] as string[], preferences: {} as { tone?: string }, mode: 'calm' }),
  migrations: { 1: (v1) => ({ ...v1, preferences: {} }), 2: (v2) => ({ ...v2, mode: 'calm' }) },
})
const invalid = expect.objectContaining({ code: 'invalid_input' })

describe('state', () => {
  it('is typed by its initial value, and frozen', () => {
    expectTypeOf(chat).toEqualTypeOf<StateDefinition<{ messages: string[]; preferences: { tone?: string }; mode: string }>>()
    expect(Object.isFrozen(chat) && Object.isFrozen(chat.migrations)).toBe(true)
  })

  it('refuses versions and migrations that do not add up', () => {
    const initial = () => ({})
    const same = (value: unknown) => value
    for (const version of [0, -1, 1.5, Number.NaN, '1' as never]) expect(() => state({ version, initial })).toThrow(invalid)
    expect(() => state({ version: 2, initial })).toThrow(/no migration from version 1 to 2/)
    expect(() => state({ version: 4, initial, migrations: { 1: same, 3: same } })).toThrow(/from version 2 to 3/)
    expect(() => state({ version: 2, initial, migrations: { 1: same, 2: same } })).toThrow(invalid)
    expect(() => state({ version: 2, initial, migrations: { 1: 'x' as never } })).toThrow(invalid)
    expect(() => state({ version: 1, initial: {} as never })).toThrow(invalid)
    expect(state({ version: 4, initial, migrations: { 2: same, 3: same } }).version).toBe(4)
    expect(state({ version: 1, initial, migrations: { 0: same } }).version).toBe(1)
  })

  it('migrates step by step, and not at all when nothing is to be done', () => {
    const old = Object.freeze({ messages: ['hi'] })
    expect(migrateState(chat, old, 1)).toEqual({ value: { messages: ['hi'], preferences: {}, mode: 'calm' }, version: 3 })
    expect(migrateState(chat, old, 3).value).toBe(old)
    expect(old).toEqual({ messages: ['hi'] })
  })

  it('starts with initial, or lays an untyped state over it', () => {
    expect(migrateState(chat, undefined, 0).value).toEqual(chat.initial())
    expect(migrateState(chat, { messages: ['a'], extra: 1 }, 0)).toEqual({
      value: { messages: ['a'], preferences: {}, mode: 'calm', extra: 1 },
      version: 3,
    })
    expect(migrateState(chat, [1], 0).value).toEqual([1])
    const from0 = state({
      version: 2,
      initial: () => ({ n: 0 }),
      migrations: { 0: (v) => ({ n: v.count }), 1: (v) => ({ n: v.n + 1 }) },
    })
    expect(migrateState(from0, { count: 5 }, 0)).toEqual({ value: { n: 6 }, version: 2 })
    expect(migrateState(from0, undefined, 0).value).toEqual({ n: 0 })
    const polluted = migrateState(chat, JSON.parse('{"__proto__":{"x":1}}'), 0).value
    expect(Object.getPrototypeOf(polluted)).toBe(Object.prototype)
  })

  it('refuses a newer state, a dropped migration and one that fails', () => {
    expect(() => migrateState(chat, {}, 4)).toThrow(expect.objectContaining({ code: 'schema_too_new' }))
    const initial = () => ({})
    const late = state({ version: 3, initial, migrations: { 2: (v) => v } })
    expect(() => migrateState(late, {}, 1)).toThrow(/version 1 and there is no migration/)
    const cause = new TypeError('no preferences')
    const failing = state({
      version: 2,
      initial,
      migrations: {
        1: () => {
          throw cause
        },
      },
    })
    expect(() => migrateState(failing, {}, 1)).toThrow(
      expect.objectContaining({ code: 'invalid_input', cause, message: expect.stringContaining('from version 1 to 2') }),
    )
    const asynchronous = state({ version: 2, initial, migrations: { 1: async (v) => v } })
    expect(() => migrateState(asynchronous, {}, 1)).toThrow(invalid)
    const forgetful = state({ version: 2, initial, migrations: { 1: () => undefined } })
    expect(() => migrateState(forgetful, {}, 1)).toThrow(invalid)
  })
})
