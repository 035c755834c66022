// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import fc from 'fast-check'
import { create } from 'mutative'
import { describe, expect, it, vi } from 'vitest'
import { createCodec } from './codec.ts'
import { deepFreeze } from './container.ts'
import { applyPatch, diffUpdate, type Patch, type Recipe, replaceState } from './patch.ts'

const codec = createCodec({ compressAbove: 1_000_000_000 })

/** What the engine does with a recipe. */
function update(state: unknown, recipe: Recipe): { next: unknown; patch: Patch | null; bytes: number } {
  const patch = diffUpdate(state, recipe)
  if (patch === null) return { next: state, patch, bytes: 0 }
  const payload = codec.encode(patch)
  return { next: applyPatch(state, codec.decode(payload) as Patch), patch, bytes: payload.length }
}

/** Text that tells everything apart, the order of keys, entries and members included. */
const exact = (value: unknown) => codec.encode(value)
const corrupt = expect.objectContaining({ code: 'corrupt_record' })
const notStorable = (path: string) =>
  expect.objectContaining({ code: 'value_not_storable', details: expect.objectContaining({ path }) })

function isDeeplyFrozen(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Date || ArrayBuffer.isView(value)) return true
  const children = value instanceof Map || value instanceof Set ? [...value.values()] : Object.values(value)
  return Object.isFrozen(value) && children.every(isDeeplyFrozen)
}

describe('a patch gives the state that the recipe made', () => {
  const leaf = fc.oneof(
    fc.integer({ min: -3, max: 9 }),
    fc.constantFrom(
      '',
      'a',
      'some longer text to be edited',
      '😀 pairs 😀 here 😀',
      '\ud83d',
      'x'.repeat(40),
      null,
      undefined,
      true,
      -0,
      0,
      Number.NaN,
      5n,
    ),
  )
  const key = fc.constantFrom('a', 'b', 'c', 'dd', '1', '10', '2', 'constructor', 'toString', '$hf')
  const mapKey = fc.oneof(key, fc.constantFrom(1, null, undefined, true, 3n, Number.NaN))
  const valuesWith = (special: fc.Arbitrary<unknown>) =>
    fc.letrec((tie) => ({
      value: fc.oneof({ depthSize: 'small' }, leaf, special, tie('array'), tie('object'), tie('map'), tie('set')),
      array: fc.oneof(
        fc.array(tie('value'), { maxLength: 8 }),
        fc.array(fc.record({ id: fc.nat(9), text: leaf }, { noNullPrototype: true }), { maxLength: 12 }),
        fc.array(leaf, { maxLength: 30 }),
      ),
      object: fc.dictionary(key, tie('value'), { maxKeys: 6, noNullPrototype: true }),
      map: fc.array(fc.tuple(mapKey, tie('value')), { maxLength: 5 }).map((entries) => new Map(entries)),
      set: fc.array(leaf, { maxLength: 6 }).map((members) => new Set(members)),
      root: fc.oneof(tie('object'), tie('object'), tie('array'), tie('map')),
    }))
  const plain = valuesWith(leaf)
  const dated = valuesWith(
    fc.oneof(
      fc.integer({ min: 0, max: 3 }).map((ms) => new Date(ms)),
      fc.uint8Array({ maxLength: 3 }),
    ),
  )
  const command = fc.record({
    where: fc.array(fc.nat(20), { maxLength: 4 }),
    act: fc.nat(20),
    n: fc.nat(12),
    m: fc.nat(12),
    key,
    mapKey,
    value: dated['value'],
    plain: plain['value'],
  })
  type Command = {
    where: number[]
    act: number
    n: number
    m: number
    key: string
    mapKey: unknown
    value: unknown
    plain: unknown
  }

  function childrenOf(node: unknown): unknown[] {
    if (Array.isArray(node)) return [...node]
    if (node instanceof Map) return [...node.values()]
    return node instanceof Set || node instanceof Date || ArrayBuffer.isView(node) ? [] : Object.values(node as object)
  }

  function act(root: unknown, command: Command, value: unknown): void {
    let node = root
    for (const choice of command.where) {
      const inner = childrenOf(node).filter(
        (child) => typeof child === 'object' && child !== null && !(child instanceof Date) && !ArrayBuffer.isView(child),
      )
      if (inner.length === 0) break
      node = inner[choice % inner.length]
    }
    const { n, m } = command
    if (Array.isArray(node)) actOnArray(node, command.act, n, m, value)
    else if (node instanceof Map) {
      const keys = [...node.keys()]
      const existing = keys.length > 0 ? keys[n % keys.length] : command.mapKey
      if (command.act % 5 === 0) node.delete(existing)
      else if (command.act % 5 === 1) {
        const kept = node.get(existing)
        node.delete(existing)
        node.set(existing, kept)
      } else if (command.act === 2) node.clear()
      else if (command.act % 5 === 3) node.set(existing, value)
      else node.set(command.mapKey, value)
    } else if (node instanceof Set) {
      const members = [...node]
      if (members.length > 0 && command.act % 3 === 0) node.delete(members[n % members.length])
      if (members.length > 0 && command.act % 3 === 1) {
        node.delete(members[n % members.length])
        node.add(members[n % members.length])
      }
      if (command.act % 3 === 2) node.add(typeof value === 'object' ? n : value)
    } else actOnObject(node as Record<string, unknown>, command, value)
  }

  function actOnArray(list: unknown[], what: number, n: number, m: number, value: unknown): void {
    const at = list.length > 0 ? n % list.length : 0
    const acts: (() => unknown)[] = [
      () => list.push(value),
      () => list.push(value, n, value),
      () => list.pop(),
      () => list.shift(),
      () => list.unshift(value),
      () => list.splice(at, m % 4, value),
      () => list.splice(at, m % 4),
      () => list.reverse(),
      () =>
        list.sort((a, b) =>
          JSON.stringify(typeof a === 'bigint' ? 0 : typeof a) < JSON.stringify(typeof b === 'bigint' ? 0 : typeof b) ? -1 : 1,
        ),
      () => (list.length > 0 ? (list[at] = value) : 0),
      () => (list.length > 1 ? ([list[at], list[m % list.length]] = [list[m % list.length], list[at]]) : 0),
      () => list.splice(0, list.length, ...list.filter((_, i) => i % 3 !== n % 3)),
      () => (list.length > 0 ? (list[at] = list[m % list.length]) : 0),
      () => (list.length = Math.min(list.length, m)),
      () => list.copyWithin(at, m % (list.length + 1)),
      () => (typeof list[at] === 'string' ? (list[at] += 'more') : list.push(list[at])),
      () => list.fill(value, at, at + 2),
      () => {
        list.shift()
        list.push(value)
      },
    ]
    acts[what % acts.length]?.()
  }

  function actOnObject(object: Record<string, unknown>, command: Command, value: unknown): void {
    const keys = Object.keys(object)
    const existing = keys.length > 0 ? (keys[command.n % keys.length] as string) : command.key
    const other = keys.length > 0 ? (keys[command.m % keys.length] as string) : command.key
    const own = (name: string) => (Object.hasOwn(object, name) ? object[name] : undefined)
    const old = own(existing)
    const acts: (() => unknown)[] = [
      () => (object[command.key] = value),
      () => delete object[existing],
      () => {
        delete object[existing]
        object[existing] = old
      },
      () => (object[existing] = own(other)),
      () => (object[existing] = value),
      () => (typeof old === 'string' ? (object[existing] = `${old.slice(0, command.n)}né😀w${old.slice(command.m)}`) : 0),
      () => (typeof old === 'string' ? (object[existing] = `${old} token`) : 0),
      () => (Array.isArray(old) ? (object[existing] = [...old, value]) : 0),
      () => (Array.isArray(old) ? (object[existing] = [value, ...old]) : 0),
      () => (Array.isArray(old) ? (object[existing] = old.slice(command.n, -1)) : 0),
      () => (Array.isArray(old) ? (object[existing] = old.filter((_, i) => i !== command.n)) : 0),
      () => (Array.isArray(old) ? (object[existing] = [...old, value].slice(-command.m)) : 0),
      () => (object[command.key] = { nested: own(other), value }),
      () =>
        typeof old === 'object' && old !== null && !(old instanceof Date)
          ? (object[existing] = Array.isArray(old) ? [...old] : old instanceof Map ? new Map(old) : { z: 1, ...old })
          : 0,
      () => (typeof old === 'number' ? (object[existing] = -old) : 0),
    ]
    acts[command.act % acts.length]?.()
  }

  const recipeOf =
    (commands: Command[], pick: 'value' | 'plain'): Recipe =>
    (draft) => {
      for (const command of commands) act(draft, command, codec.decode(codec.encode(command[pick])))
    }

  function check(state: unknown, recipe: Recipe): void {
    const before = exact(state)
    const expected = create(state as object, recipe as (draft: object) => void)
    const { next, patch } = update(state, recipe)
    expect(exact(next)).toBe(exact(expected))
    expect(exact(state)).toBe(before)
    expect(patch === null).toBe(exact(expected) === before)
    expect(isDeeplyFrozen(next)).toBe(true)
  }

  it.each([
    ['with plain values', plain, 'plain'],
    ['with Dates and bytes', dated, 'value'],
  ] as const)('%s, for any recipe (property)', (_, values, pick) => {
    fc.assert(
      fc.property(
        values['root'] as fc.Arbitrary<unknown>,
        fc.array(command as fc.Arbitrary<Command>, { minLength: 1, maxLength: 5 }),
        (root, commands) => {
          check(deepFreeze(codec.decode(codec.encode(root))), recipeOf(commands, pick))
        },
      ),
      { numRuns: 2000 },
    )
  })

  it('over many updates, also when their patches are joined (property)', () => {
    fc.assert(
      fc.property(
        plain['root'] as fc.Arbitrary<unknown>,
        fc.array(command as fc.Arbitrary<Command>, { minLength: 2, maxLength: 12 }),
        (root, commands) => {
          const first = deepFreeze(codec.decode(codec.encode(root)))
          let state = first
          const joined: Patch[number][] = []
          for (const one of commands) {
            const { next, patch } = update(state, recipeOf([one], 'plain'))
            joined.push(...(patch ?? []))
            state = next
          }
          const whole = applyPatch(first, codec.decode(codec.encode(joined)) as Patch)
          expect(exact(whole)).toBe(exact(state))
          expect(isDeeplyFrozen(whole)).toBe(true)
        },
      ),
      { numRuns: 1000 },
    )
  })

  it('for any two states (property)', () => {
    fc.assert(
      fc.property(dated['root'] as fc.Arbitrary<unknown>, dated['root'] as fc.Arbitrary<unknown>, (from, to) => {
        const state = deepFreeze(codec.decode(codec.encode(from)))
        const { next } = update(state, () => to)
        expect(exact(next)).toBe(exact(to))
      }),
      { numRuns: 2000 },
    )
  })
})

describe('a patch costs what changed', () => {
  const message = (i: number) => ({ id: `m${i}`, role: 'user', text: `message number ${i}` })
  const list = Array.from({ length: 2000 }, (_, i) => message(i))
  const state = deepFreeze({
    list,
    other: { deep: [list.slice(0, 50)] },
    text: 'word '.repeat(2000),
    n: 1,
    tags: new Set(list.map((m) => m.id)),
    by: new Map(list.map((m) => [m.id, m])),
  })

  it.each<[string, Recipe, number]>([
    [
      'push',
      (d) => {
        d.list.push(message(0))
      },
      100,
    ],
    [
      '[...list, x]',
      (d) => {
        d.list = [...d.list, message(0)]
      },
      100,
    ],
    ['a new state around it', (d) => ({ ...d, list: [...d.list, message(0)] }), 100],
    [
      'shift',
      (d) => {
        d.list.shift()
      },
      40,
    ],
    [
      'slice(1)',
      (d) => {
        d.list = d.list.slice(1)
      },
      40,
    ],
    [
      'slice(-50)',
      (d) => {
        d.list = d.list.slice(-50)
      },
      40,
    ],
    [
      'a window that slides',
      (d) => {
        d.list = [...d.list, message(0)].slice(1)
      },
      120,
    ],
    [
      'unshift',
      (d) => {
        d.list.unshift(message(0))
      },
      100,
    ],
    [
      'splice',
      (d) => {
        d.list.splice(500, 2, message(0))
      },
      100,
    ],
    [
      'filter',
      (d) => {
        d.list = d.list.filter((_: unknown, i: number) => i % 500 !== 7)
      },
      100,
    ],
    [
      'one element',
      (d) => {
        d.list[1500].text = 'new'
      },
      60,
    ],
    [
      'one element, copied',
      (d) => {
        d.list = d.list.map((m: object, i: number) => (i === 3 ? { ...m, done: true } : m))
      },
      60,
    ],
    [
      'two elements',
      (d) => {
        d.list[5].text = 'new'
        d.list[1500].text = 'new'
      },
      100,
    ],
    [
      'a swap',
      (d) => {
        const [a, b] = [d.list[5], d.list[900]]
        d.list[5] = b
        d.list[900] = a
      },
      200,
    ],
    [
      'reverse',
      (d) => {
        d.list.reverse()
      },
      30_000,
    ],
    ['a clone of everything', (d) => ({ ...structuredClone(state), n: d.n + 1 }), 60],
    [
      'text += token',
      (d) => {
        d.text += 'token'
      },
      40,
    ],
    [
      'an edit of a text',
      (d) => {
        d.text = `${d.text.slice(0, 5000)}!${d.text.slice(5001)}`
      },
      40,
    ],
    [
      'a number',
      (d) => {
        d.n += 1
      },
      30,
    ],
    [
      'a member',
      (d) => {
        d.tags.add('new')
        d.tags.delete('m7')
      },
      50,
    ],
    [
      'a Map entry',
      (d) => {
        d.by.set('new', 1)
        d.by.get('m5').text = 'x'
        d.by.delete('m7')
      },
      120,
    ],
    [
      'a deep one',
      (d) => {
        d.other.deep[0][3].text = 'x'
      },
      60,
    ],
  ])('%s', (_, recipe, most) => {
    const { next, bytes } = update(state, recipe)
    expect(bytes).toBeGreaterThan(0)
    expect(bytes).toBeLessThan(most)
    // mutative warns about a returned state without drafts; diffUpdate does not hand it one.
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const expected = create(state, (draft) => recipe(draft) as never)
    expect(exact(next)).toBe(exact(expected))
  })

  it('shares what was not touched', () => {
    const { next } = update(state, (d) => {
      d.list[3].text = 'x'
    }) as { next: typeof state }
    expect(next.list[4]).toBe(state.list[4])
    expect(next.other).toBe(state.other)
    expect(next.list[3]).not.toBe(state.list[3])
  })

  it('splits no pair of surrogates', () => {
    const before = deepFreeze({ text: `${'x'.repeat(30)}😀😁${'y'.repeat(30)}` })
    const { patch } = update(before, (d) => {
      d.text = `${'x'.repeat(30)}😀😂${'y'.repeat(30)}`
    })
    expect(patch?.[0]?.[4 as 2]).toBe('😂')
  })

  it('is null when nothing changed', () => {
    for (const recipe of [
      () => {},
      (d: typeof state) => {
        d.n = 1
      },
      (d: typeof state) => {
        d.list.push(message(1))
        d.list.pop()
      },
      (d: typeof state) => ({ ...d }),
    ]) {
      expect(diffUpdate(state, recipe)).toBeNull()
    }
  })
})

describe('a recipe', () => {
  const state = deepFreeze({
    items: [1],
    tags: new Set(['a']),
    at: new Date(5),
    bytes: new Uint8Array([1, 2]),
    user: { name: 'x' },
    map: new Map([['k', new Date(1)]]),
    error: Object.assign(new Error('e'), { when: new Date(2) }),
  })
  const before = exact(state)

  it('may return whatever an arrow function happens to return', () => {
    expect(update(state, (d) => d.items.push(2)).next).toMatchObject({ items: [1, 2] })
    expect(update(state, (d) => d.tags.add('a')).patch).toBeNull()
    expect(update(state, (d) => d.tags.add('b')).next).toMatchObject({ tags: new Set(['a', 'b']) })
    expect(update(state, (d) => d.map.delete('none')).patch).toBeNull()
    expect(update(state, (d) => Object.assign(d.user, { name: 'y' })).next).toMatchObject({ user: { name: 'y' } })
    expect(update(state, (d) => d).patch).toBeNull()
  })

  it('may not both change its draft and return a new state', () => {
    expect(() =>
      diffUpdate(state, (d) => {
        d.items.push(2)
        return { ...d, extra: 1 }
      }),
    ).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    expect(() => diffUpdate(state, () => new Date())).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  })

  it('may not be asynchronous', async () => {
    let late: unknown
    const recipe = async (d: { items: number[] }) => {
      d.items.push(2)
      await null
      try {
        d.items.push(3)
      } catch (error) {
        late = error
        throw error
      }
    }
    expect(() => diffUpdate(state, recipe)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    await new Promise((resolve) => setImmediate(resolve))
    expect(late).toBeInstanceOf(TypeError)
    expect(exact(state)).toBe(before)
  })

  it('that throws changes nothing, and its error comes through', () => {
    const error = new Error('mine')
    expect(() =>
      diffUpdate(state, (d) => {
        d.items.push(2)
        d.bytes[0] = 9
        throw error
      }),
    ).toThrow(error)
    expect(exact(state)).toBe(before)
  })

  it('cannot use its draft afterwards', () => {
    let stale: { items: number[] } | undefined
    diffUpdate(state, (d) => {
      stale = d
      d.items.push(2)
    })
    expect(() => stale?.items).toThrow(TypeError)
  })

  it.each<[string, Recipe, string]>([
    [
      'a Date',
      (d) => {
        d.at.setFullYear(2000)
      },
      '$.at',
    ],
    [
      'bytes',
      (d) => {
        d.bytes[0] = 9
        d.items.push(1)
      },
      '$.bytes',
    ],
    [
      'a Date in a Map',
      (d) => {
        d.map.get('k').setTime(7)
      },
      '$.map.k',
    ],
    [
      'a Date in an error',
      (d) => {
        d.error.when.setTime(7)
      },
      '$.error.when',
    ],
    [
      'a Date that it moves',
      (d) => {
        const at = d.at
        d.other = at
        at.setTime(3)
      },
      '$.at',
    ],
  ])('may not change %s in place', (_, recipe, path) => {
    expect(() => diffUpdate(state, recipe)).toThrow(notStorable(path))
    expect(exact(state)).toBe(before)
  })

  it('may read Dates, put in new ones, and change those it brought', () => {
    const recipe: Recipe = (d) => {
      const fresh = new Date(d.at.getTime() + 1)
      d.at = fresh
      fresh.setTime(77)
      d.user.since = [new Date(1)]
      d.user.since[0].setTime(2)
    }
    expect(update(state, recipe).next).toMatchObject({ at: new Date(77), user: { since: [new Date(2)] } })
    expect(exact(state)).toBe(before)
  })

  it('sees objects without a prototype as drafts', () => {
    const from = deepFreeze({ query: Object.assign(Object.create(null), { a: { b: 1 } }) })
    const { next } = update(from, (d) => {
      d.query.a.b = 2
      d.query.c = 3
    }) as { next: typeof from }
    expect(exact(next)).toBe(exact({ query: Object.assign(Object.create(null), { a: { b: 2 }, c: 3 }) }))
    expect(exact(from)).toContain('{"b":1}')
  })

  it.each<[string, Recipe, string]>([
    [
      'functions',
      (d) => {
        d.items.push({ fn() {} })
      },
      '$.items[1].fn',
    ],
    [
      'objects in a Set',
      (d) => {
        d.tags.add({})
      },
      '$.tags',
    ],
    [
      'objects in a new Set',
      (d) => {
        d.x = { s: new Set([[1]]) }
      },
      '$.x.s.values()[0]',
    ],
    [
      'objects as Map keys',
      (d) => {
        d.map.set({}, 1)
      },
      '$.map',
    ],
    [
      'objects as keys of a new Map',
      (d) => {
        d.x = [new Map([[{}, 1]])]
      },
      '$.x[0].keys()[0]',
    ],
    [
      'holes',
      (d) => {
        d.items[5] = 1
      },
      '$.items[1]',
    ],
    [
      'a match',
      (d) => {
        d.items = 'x'.match(/x/)
      },
      '$.items',
    ],
    [
      'symbols',
      (d) => {
        d.user = { name: 'x', [Symbol('s')]: 1 }
      },
      '$.user',
    ],
    [
      'class instances',
      (d) => {
        d.user.x = new URL('http://x')
      },
      '$.user.x',
    ],
    ['a class instance as the state', () => new (class App {})(), '$'],
    [
      'a cycle',
      (d) => {
        const a: unknown[] = []
        a.push({ a })
        d.user.a = a
      },
      '$.user.a[0].a',
    ],
  ])('may not put in %s', (_, recipe, path) => {
    expect(() => diffUpdate(state, recipe)).toThrow(notStorable(path))
    expect(exact(state)).toBe(before)
  })

  it('refuses a returned cycle without going round for ever', () => {
    const cyclic: Record<string, unknown> = {}
    cyclic['a'] = cyclic
    cyclic['b'] = cyclic
    expect(() => diffUpdate(state, () => cyclic)).toThrow(notStorable('$.a.a'))
  })

  it('cannot make the state deeper than a snapshot may be', () => {
    const nest = (levels: number) => {
      let value: unknown = 1
      for (let i = 0; i < levels; i++) value = [value]
      return value
    }
    let deep: unknown = deepFreeze({})
    const refusals: unknown[] = []
    for (let i = 0; i < 10; i++) {
      try {
        deep = update(deep, (d) => {
          let at = d
          while (at.next) at = at.next
          at.next = { keep: 1, value: nest(i * 12), next: { keep: 1, x: nest(30) } }
        }).next
        deep = update(deep, (d) => {
          let at = d
          for (let k = 0; k < 18; k++) {
            while (at.next) at = at.next
            at.next = { keep: 1 }
          }
        }).next
      } catch (error) {
        refusals.push((error as { code: string }).code)
      }
    }
    expect(new Set(refusals)).toEqual(new Set(['value_not_storable']))
    expect(codec.decode(codec.encode(deep))).toEqual(deep)
    const replaced = update(deep, () => ({ keep: nest(195) })).next
    expect(exact(codec.decode(codec.encode(replaced)))).toBe(exact(replaced))
  })

  it('takes an own key __proto__ for a key', () => {
    const from = deepFreeze(JSON.parse('{"a":{"__proto__":{"x":1}},"b":1}'))
    const { next } = update(from, (d) => {
      d.a.y = 2
      d.c = JSON.parse('{"__proto__":5}')
    })
    expect(exact(next)).toBe('{"a":{"__proto__":{"x":1},"y":2},"b":1,"c":{"__proto__":5}}')
    const { next: replaced } = update(deepFreeze({ a: 1, b: 2 }), (d) => ({ ...d, ...JSON.parse('{"__proto__":{"z":1}}') }))
    expect(exact(replaced)).toBe('{"a":1,"b":2,"__proto__":{"z":1}}')
    expect(Object.getPrototypeOf(replaced)).toBe(Object.prototype)
    expect(({} as { z?: unknown }).z).toBeUndefined()
  })
})

describe('applyPatch', () => {
  const state = deepFreeze({ a: { b: [1, 2, 3] }, text: 'abc', map: new Map([['k', 1]]), set: new Set([1]), at: new Date(0) })

  it.each<[string, unknown]>([
    ['no list', { op: '=' }],
    ['no path', [['=']]],
    ['no value', [['=', ['a']]]],
    ['an unknown operation', [['call', ['a'], 1]]],
    ['__proto__', [['=', ['__proto__', 'x'], 1]]],
    ['constructor', [['=', ['constructor', 'prototype', 'x'], 1]]],
    ['an inherited key', [['=', ['a', 'toString', 'x'], 1]]],
    ['an array method', [['=', ['a', 'b', 'push'], 1]]],
    ['an index too high', [['=', ['a', 'b', 99999999], 1]]],
    ['the end of an array', [['=', ['a', 'b', 3], 1]]],
    ['-', [['=', ['a', 'b', '-'], 1]]],
    ['an index as text', [['=', ['a', 'b', '0'], 1]]],
    ['a negative index', [['=', ['a', 'b', -1], 1]]],
    ['length', [['=', ['a', 'b', 'length'], 1e9]]],
    ['a missing parent', [['=', ['x', 'y'], 1]]],
    ['a key of a string', [['=', ['text', '0'], 'x']]],
    ['a part of a Date', [['=', ['at', 'x'], 1]]],
    ['a part of a Set', [['=', ['set', 0], 1]]],
    ['a number as a key', [['=', ['a', 1], 1]]],
    ['a missing key deleted', [['-', ['x']]]],
    ['the state deleted', [['-', []]]],
    ['an element deleted', [['-', ['a', 'b', 0]]]],
    ['a splice out of range', [['s', ['a', 'b'], 4, 0, []]]],
    ['a splice of too many', [['s', ['a', 'b'], 1, 3, []]]],
    ['a splice without items', [['s', ['a', 'b'], 1, 1]]],
    ['a splice of an object', [['s', ['a'], 0, 0, []]]],
    ['segments out of range', [['a', ['a', 'b'], [2, 2]]]],
    ['half a segment', [['a', ['a', 'b'], [2]]]],
    ['text of an array', [['t', ['a', 'b'], 0, 0, 'x']]],
    ['text out of range', [['t', ['text'], 2, 2, 'x']]],
    ['a member that is not there', [['d', ['set'], [7], []]]],
    ['an object as a member', [['d', ['set'], [], [{}]]]],
    ['a move of what is not there', [['m', ['map'], ['x']]]],
    ['a move in an array', [['m', ['a', 'b'], [0]]]],
    ['an object as a Map key', [['=', ['map', {}], 1]]],
  ])('refuses %s', (_, patch) => {
    expect(() => applyPatch(state, patch as Patch)).toThrow(corrupt)
    expect(exact(state)).toBe(
      exact({ a: { b: [1, 2, 3] }, text: 'abc', map: new Map([['k', 1]]), set: new Set([1]), at: new Date(0) }),
    )
  })

  it('sets an own key __proto__ without touching the prototype', () => {
    const next = applyPatch(state, [['=', ['__proto__'], { x: 1 }]]) as object
    expect(Object.getPrototypeOf(next)).toBe(Object.prototype)
    expect(Object.hasOwn(next, '__proto__')).toBe(true)
    expect(Object.getPrototypeOf(applyPatch(next, [['=', ['__proto__', 'y'], 2]]))).toBe(Object.prototype)
  })

  it('starts from {} where nothing was written, and returns what is unchanged', () => {
    expect(applyPatch(undefined, [['=', ['a'], 1]])).toEqual({ a: 1 })
    expect(applyPatch(state, [])).toBe(state)
  })

  it('keeps elements apart that were copied from one', () => {
    const from = deepFreeze({ list: [{ n: { v: 1 } }] })
    const next = applyPatch(from, [
      ['=', ['list', 0, 'n', 'v'], 2],
      ['a', ['list'], [0, 1, 0, 1]],
      ['=', ['list', 1, 'n', 'v'], 3],
    ])
    expect(next).toEqual({ list: [{ n: { v: 2 } }, { n: { v: 3 } }] })
    expect(isDeeplyFrozen(next)).toBe(true)
  })

  it('takes replaceState', () => {
    expect(applyPatch(state, replaceState({ fresh: [1] }))).toEqual({ fresh: [1] })
    expect(() => replaceState({ s: new Set([{}]) })).toThrow(notStorable('$.s.values()[0]'))
  })
})

describe('deepFreeze', () => {
  it('freezes everything that can be frozen', () => {
    const value = deepFreeze({
      a: [{ b: 1 }],
      map: new Map([['k', { c: 1 }]]),
      at: new Date(0),
      bytes: new Uint8Array(2),
      error: Object.assign(new Error('x', { cause: { d: 1 } }), { e: {} }),
    })
    expect(isDeeplyFrozen({ ...value, __proto__: null }) || isDeeplyFrozen(value)).toBe(true)
    expect(Object.isFrozen(value.map.get('k')) && Object.isFrozen(value.error.cause) && Object.isFrozen(value.error.e)).toBe(true)
    expect(deepFreeze(5)).toBe(5)
  })
})
