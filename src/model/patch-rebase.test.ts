// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCodec } from './codec.ts'
import { deepFreeze } from './container.ts'
import { applyPatch, diffUpdate, type Patch, type Recipe } from './patch.ts'
import { rebasePatch } from './patch-rebase.ts'

const codec = createCodec()

function patchOf(state: unknown, recipe: Recipe): Patch {
  return codec.decode(codec.encode(diffUpdate(state, recipe) ?? [])) as Patch
}

/** Both changes are made, one after the other; then the first is taken out. */
function withoutFirst(state: unknown, first: Recipe, second: Recipe): unknown {
  const start = deepFreeze(state)
  const between = applyPatch(
    start,
    patchOf(start, (draft) => void first(draft)),
  )
  return rebasePatch(
    patchOf(between, (draft) => void second(draft)),
    between,
    start,
  )
}

const conflict = (path: string) => expect.objectContaining({ code: 'conflict', details: { path } })

describe('a patch on a state without an earlier change', () => {
  it('appends to an array and to a text, also where the earlier change made the first element', () => {
    expect(
      withoutFirst(
        { list: [], n: 0 },
        (d) => d.list.push('a'),
        (d) => d.list.push('b'),
      ),
    ).toEqual({ list: ['b'], n: 0 })
    expect(
      withoutFirst(
        { list: ['x'] },
        (d) => d.list.push('a', 'b'),
        (d) => d.list.push('c'),
      ),
    ).toEqual({ list: ['x', 'c'] })
    const [long, more] = ['a text that is long enough', ' and this is added to it']
    expect(
      withoutFirst(
        { text: long },
        (d) => (d.text += ' and what was taken out'),
        (d) => (d.text += more),
      ),
    ).toEqual({ text: long + more })
  })

  it('appends where the earlier change had emptied the array', () => {
    expect(
      withoutFirst(
        { list: ['a'], n: 0 },
        (d) => (d.list = []),
        (d) => d.list.push('b'),
      ),
    ).toEqual({ list: ['a', 'b'], n: 0 })
  })

  it('changes one part of an object and leaves alone what the earlier change had done beside it', () => {
    expect(
      withoutFirst(
        { a: 1 },
        (d) => (d.b = 2),
        (d) => (d.a = 3),
      ),
    ).toEqual({ a: 3 })
    expect(
      withoutFirst(
        { a: 1, b: 2 },
        (d) => delete d.b,
        (d) => (d.a = 3),
      ),
    ).toEqual({ a: 3, b: 2 })
  })

  it('finds elements again by what they are', () => {
    const first: Recipe = (d) => d.list.unshift({ id: 'new' })
    const state = { list: [{ id: 'a' }, { id: 'b' }, { id: 'c' }] }
    expect(withoutFirst(state, first, (d) => (d.list[2].done = true))).toEqual({
      list: [{ id: 'a' }, { id: 'b', done: true }, { id: 'c' }],
    })
    expect(withoutFirst(state, first, (d) => d.list.splice(1, 1))).toEqual({ list: [{ id: 'b' }, { id: 'c' }] })
    expect(withoutFirst(state, first, (d) => d.list.splice(2, 0, { id: 'between' }))).toEqual({
      list: [{ id: 'a' }, { id: 'between' }, { id: 'b' }, { id: 'c' }],
    })
    expect(withoutFirst(state, first, (d) => d.list.pop())).toEqual({ list: [{ id: 'a' }, { id: 'b' }] })
    expect(() => withoutFirst(state, first, (d) => d.list.reverse())).toThrow(conflict('$.list'))
  })

  it('adds to and takes from Maps and Sets', () => {
    const state = { map: new Map([['a', 1]]), set: new Set(['a']) }
    const changed = withoutFirst(
      state,
      (d) => {
        d.map.set('b', 2)
        d.set.add('b')
      },
      (d) => {
        d.map.set('c', 3).delete('b')
        d.set.add('c').delete('b')
      },
    )
    expect(changed).toEqual({
      map: new Map([
        ['a', 1],
        ['c', 3],
      ]),
      set: new Set(['a', 'c']),
    })
  })

  it('is refused with its path where that is gone', () => {
    const state = { list: [] as object[], jobs: {} as Record<string, object> }
    expect(() =>
      withoutFirst(
        state,
        (d) => (d.jobs.a = { done: false }),
        (d) => (d.jobs.a.done = true),
      ),
    ).toThrow(conflict('$.jobs.a.done'))
    expect(() =>
      withoutFirst(
        state,
        (d) => d.list.push({ id: 1 }, { id: 2 }),
        (d) => (d.list[1].done = true),
      ),
    ).toThrow(conflict('$.list[1].done'))
  })

  it('on an equal state is the patch itself, whatever it does', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        const [from, to] = [{ v: a }, { v: b }]
        const patch = patchOf(from, () => to)
        expect(rebasePatch(patch, from, structuredClone(from))).toEqual(applyPatch(from, patch))
      }),
      { numRuns: 200 },
    )
  })

  it('of appends to many lists gives what the kept ones would have made alone', () => {
    const appends = fc.array(fc.record({ list: fc.constantFrom('a', 'b'), value: fc.integer(), isDropped: fc.boolean() }))
    fc.assert(
      fc.property(appends, (changes) => {
        let head: unknown = { a: [], b: ['first'] }
        let line = head
        const expected: Record<string, unknown[]> = { a: [], b: ['first'] }
        for (const { list, value, isDropped } of changes) {
          const patch = patchOf(head, (d) => void d[list].push(value))
          if (!isDropped) {
            line = rebasePatch(patch, head, line)
            expected[list]?.push(value)
          }
          head = applyPatch(head, patch)
        }
        expect(line).toEqual(expected)
      }),
    )
  })
})
