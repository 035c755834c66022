import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createCodec } from './codec.ts'
import { deepFreeze } from './container.ts'
import { applyChanges, diffStates, type StateChange } from './state-diff.ts'

const codec = createCodec({ compressAbove: 1_000_000_000 })
const leaf = fc.oneof(
  fc.integer({ min: -2, max: 5 }),
  fc.constantFrom(
    '',
    'a',
    'b',
    'some longer text',
    null,
    undefined,
    true,
    false,
    -0,
    0,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    5n,
    -7n,
  ),
)
const special = fc.oneof(
  fc.constantFrom(new Date(0), new Date(1), new Date(Number.NaN)),
  fc.uint8Array({ maxLength: 2 }),
  fc.constantFrom(new Float32Array([1, -0]), new Uint16Array([1]), Buffer.from('a'), new Uint8Array([97]).buffer),
  fc.constantFrom(new Error('one'), new TypeError('one'), new Error('two', { cause: 1 })),
)
const key = fc.constantFrom('a', 'b', 'c', 'id', '1', '10', '2', 'constructor', '__proto__', '$hf')
const mapKey = fc.oneof(key, fc.constantFrom(1, null, undefined, true, 3n, Number.NaN))
const { root } = fc.letrec((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, leaf, special, tie('array'), tie('object'), tie('map'), tie('set')),
  array: fc.oneof(
    fc.array(tie('value'), { maxLength: 6 }),
    fc.array(fc.record({ id: fc.nat(6), text: leaf }, { noNullPrototype: true }), { maxLength: 9 }),
    fc.array(leaf, { maxLength: 12 }),
  ),
  object: fc.dictionary(key, tie('value'), { maxKeys: 6 }),
  map: fc.array(fc.tuple(mapKey, tie('value')), { maxLength: 5 }).map((entries) => new Map(entries)),
  set: fc.array(leaf, { maxLength: 6 }).map((members) => new Set(members)),
  root: fc.oneof({ weight: 8, arbitrary: tie('object') }, tie('array'), tie('map'), tie('value')),
}))

describe('10,000 pairs of states: the changes lead from the one to the other', () => {
  const holds = (before: unknown, after: unknown) => {
    const changes = diffStates(deepFreeze(before), deepFreeze(after))
    expect(draw(changes.reduce(applyToDrawing, drawingOf(before)))).toBe(draw(drawingOf(after)))
    const applied = applyChanges(before, changes)
    expect(codec.encode(applied)).toBe(codec.encode(after))
    expect(diffStates(applied, after)).toEqual([])
  }
  test('that have nothing to do with each other', () => {
    fc.assert(fc.property(root as fc.Arbitrary<unknown>, root as fc.Arbitrary<unknown>, holds), { numRuns: 4_000 })
  })
  test('of which one was made from the other', () => {
    const acts = fc.array(fc.tuple(fc.nat(), fc.nat(3), leaf), { minLength: 1, maxLength: 4 })
    const changed = (value: unknown, some: readonly [number, number, unknown][]) =>
      some.reduce((state, [where, act, item]) => mutate(state, where, act, item), codec.decode(codec.encode(value)))
    fc.assert(
      fc.property(root as fc.Arbitrary<unknown>, acts, (before, some) => holds(before, changed(before, some))),
      { numRuns: 6_000 },
    )
  })
})

describe('what changed is told as a person would', () => {
  const told = (before: unknown, after: unknown) =>
    diffStates(before, after).map((change) => `${change.change} ${change.path.map(String).join('.')}`)

  test('a list is aligned: what came before it does not change its items', () => {
    expect(told({ list: ['b', 'c', 'd'] }, { list: ['a', 'b', 'd', 'e'] })).toEqual([
      'removed list.1',
      'added list.0',
      'added list.3',
    ])
  })
  test('an item with an id is known by it, and one without by its place', () => {
    const before = [
      { id: 1, text: 'one' },
      { id: 2, text: 'two' },
    ]
    expect(
      told(before, [
        { id: 3, text: 'new' },
        { id: 2, text: 'TWO' },
      ]),
    ).toEqual(['removed 0', 'added 0', 'replaced 1.text'])
    expect(told([{ text: 'one' }, { text: 'two' }], [{ text: 'one' }, { text: 'TWO' }])).toEqual(['replaced 1.text'])
  })
  test('a member of a Set is the last key of its path, a key of a Map as it is', () => {
    expect(
      diffStates({ tags: new Set([1, 2]), by: new Map([[1, 'x']]) }, { tags: new Set([2, 3]), by: new Map([[1, 'y']]) }),
    ).toEqual([
      { change: 'removed', path: ['tags', 1], value: 1 },
      { change: 'added', path: ['tags', 3], value: 3 },
      { change: 'replaced', path: ['by', 1], before: 'x', after: 'y' },
    ])
  })
  test('another order of keys is a change', () => {
    expect(diffStates({ a: 1, b: 2 }, { b: 2, a: 1 })).toEqual([{ change: 'reordered', path: [], keys: ['b', 'a'] }])
    expect(diffStates({ 2: 1, 1: 2 }, { 1: 2, 2: 1 })).toEqual([])
  })
  test('changes that do not fit are refused', () => {
    const misfits: StateChange[] = [
      { change: 'removed', path: ['x'], value: 1 },
      { change: 'replaced', path: ['list', 2], before: 1, after: 2 },
      { change: 'added', path: ['a'], value: 1 },
      { change: 'added', path: ['a', 'b'], value: 1 },
      { change: 'reordered', path: ['list'], keys: [0] },
    ]
    for (const change of misfits) {
      const code = expect.objectContaining({ code: 'invalid_input' })
      expect(() => applyChanges({ a: 1, list: [1, 2] }, [change])).toThrow(code)
    }
  })
})

/** A state as a drawing that knows nothing of objects, Maps and their rules: the oracle applies changes to this. */
type Drawing =
  | { readonly kind: string; readonly entries: readonly (readonly [name: string, value: Drawing])[] }
  | { readonly kind: 'list'; readonly items: readonly Drawing[] }
  | { readonly kind: 'value'; readonly text: string }

function drawingOf(value: unknown): Drawing {
  if (Array.isArray(value)) return { kind: 'list', items: value.map(drawingOf) }
  if (value instanceof Map) return { kind: 'map', entries: [...value].map(([name, item]) => [nameOf(name), drawingOf(item)]) }
  if (value instanceof Set) return { kind: 'set', entries: [...value].map((item) => [nameOf(item), drawingOf(item)]) }
  const prototype = typeof value === 'object' && value !== null ? Object.getPrototypeOf(value) : undefined
  if (prototype !== null && prototype !== Object.prototype) return { kind: 'value', text: nameOf(value) }
  const entries = Object.entries(value as object).map(([name, item]) => [nameOf(name), drawingOf(item)] as const)
  return { kind: prototype === null ? 'null-object' : 'object', entries }
}

function nameOf(value: unknown): string {
  return String(codec.encode(value))
}

function draw(drawing: Drawing): string {
  return JSON.stringify(drawing)
}

function applyToDrawing(drawing: Drawing, change: StateChange, _?: unknown, __?: unknown, path = change.path): Drawing {
  if (change.change === 'reordered' && path.length === 0 && 'entries' in drawing) {
    const entries = change.keys.map((name) => drawing.entries.find(([own]) => own === nameOf(name)) as [string, Drawing])
    expect(entries.length).toBe(drawing.entries.length)
    return { kind: drawing.kind, entries }
  }
  if (path.length === 0) return drawingOf((change as { after: unknown }).after)
  const [first, ...rest] = path
  const isHere = rest.length === 0 && change.change !== 'reordered'
  const inside = (item: Drawing) => applyToDrawing(item, change, undefined, undefined, rest)
  if ('items' in drawing) {
    const at = first as number
    if (isHere && change.change === 'added')
      return { kind: 'list', items: drawing.items.toSpliced(at, 0, drawingOf(change.value)) }
    if (isHere && change.change === 'removed') return { kind: 'list', items: drawing.items.toSpliced(at, 1) }
    return { kind: 'list', items: drawing.items.with(at, inside(drawing.items[at] as Drawing)) }
  }
  if (!('entries' in drawing)) throw new Error('a path leads into a value')
  const { kind, entries } = drawing
  const name = nameOf(first)
  const at = entries.findIndex(([own]) => own === name)
  if (isHere && change.change === 'added') {
    expect(at).toBe(-1)
    return { kind, entries: sorted(kind, [...entries, [name, drawingOf(change.value)]]) }
  }
  expect(at).toBeGreaterThanOrEqual(0)
  if (isHere && change.change === 'removed') return { kind, entries: entries.toSpliced(at, 1) }
  return { kind, entries: entries.with(at, [name, inside((entries[at] as [string, Drawing])[1])]) }
}

/** Where an object puts a key like "10": before all others, by number. */
function sorted(kind: string, entries: readonly (readonly [string, Drawing])[]): readonly (readonly [string, Drawing])[] {
  if (kind === 'map' || kind === 'set') return entries
  const isNumber = ([name]: readonly [string, Drawing]) => /^"\d+"$/.test(name)
  const numbers = entries.filter(isNumber).toSorted(([a], [b]) => Number(JSON.parse(a)) - Number(JSON.parse(b)))
  return [...numbers, ...entries.filter((entry) => !isNumber(entry))]
}

/** Changes one container of a state: `where` picks it. */
function mutate(state: unknown, where: number, act: number, item: unknown): unknown {
  const containers: object[] = []
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return
    const isPlain = [null, Object.prototype].includes(Object.getPrototypeOf(value) as null)
    if (!isPlain && !Array.isArray(value) && !(value instanceof Map) && !(value instanceof Set)) return
    containers.push(value)
    if (!(value instanceof Set)) for (const child of value instanceof Map ? value.values() : Object.values(value)) visit(child)
  }
  visit(state)
  const container = containers[where % Math.max(1, containers.length)]
  if (container === undefined) return item
  const at = where % 7
  if (Array.isArray(container)) {
    if (act === 0) container.splice(at, 0, item)
    else if (act === 1) container.splice(at, 2)
    else if (act === 2) container.reverse()
    else if (container.length > 0) container[at % container.length] = item
  } else if (container instanceof Map) {
    const [first] = container
    if (act === 0) container.set(at, item)
    else if (first !== undefined) container.delete(first[0])
    if (act === 2 && first !== undefined) container.set(...first)
  } else if (container instanceof Set) {
    const [first] = container
    if (act > 0) container.delete(first)
    if (act !== 1) container.add(act === 2 ? first : item)
  } else {
    const object = container as Record<string, unknown>
    const [first] = Object.entries(object)
    if (act === 0) object[`k${at}`] = item
    else if (first !== undefined && first[0] !== '__proto__') {
      delete object[first[0]]
      if (act > 1) object[first[0]] = act === 2 ? first[1] : item
    }
  }
  return state
}
