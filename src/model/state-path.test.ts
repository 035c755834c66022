import { expect, test } from 'vitest'
import { shownPath } from './container.ts'
import type { Path } from './patch-operation.ts'
import { followPath, parsePath } from './state-path.ts'

test.each<[string, Path]>([
  ['', []],
  ['$', []],
  ['messages[3].text', ['messages', 3, 'text']],
  ['messages.3.text', ['messages', '3', 'text']],
  ['$.messages[3].text', ['messages', 3, 'text']],
  ['["two words"].x', ['two words', 'x']],
  ['$["a\\"]b"]', ['a"]b']],
  ['seen.get("x.y").at', ['seen', 'x.y', 'at']],
  ['seen.get(1)', ['seen', 1]],
  ['seen.get(1n).get(undefined).get(NaN).get(null).get(true)', ['seen', 1n, undefined, Number.NaN, null, true]],
])('%s is a path', (text, keys) => {
  expect(parsePath(text)).toEqual(keys)
})

test('a path as it is shown is a path', () => {
  for (const path of [['a', 0, 'b c', 'é'], ['x', true, null], ['$', '', '"'], ['1']] as Path[])
    expect(parsePath(shownPath(path))).toEqual(path)
})

test.each([['a..b'], ['a[b]'], ['a[-1]'], ['a]'], ['x.get({})'], [5], [null], [[{}]]])('%j is none', (path) => {
  expect(() => parsePath(path as never)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
})

test('a path is followed with the keys that the containers have', () => {
  const state = {
    list: ['a', { b: 1 }],
    map: new Map<unknown, unknown>([
      [1, 'one'],
      ['2', 'two'],
    ]),
    set: new Set([1]),
    3: 'x',
    date: new Date(0),
  }
  const follow = (text: string) => followPath(state, parsePath(text))
  expect(follow('list.1.b')).toEqual({ path: ['list', 1, 'b'], isThere: true, value: 1 })
  expect(follow('map.1')).toEqual({ path: ['map', 1], isThere: true, value: 'one' })
  expect(follow('map.2')).toEqual({ path: ['map', '2'], isThere: true, value: 'two' })
  expect(follow('[3]')).toEqual({ path: ['3'], isThere: true, value: 'x' })
  expect(follow('set.1')).toEqual({ path: ['set', 1], isThere: true, value: 1 })
  expect(follow('list.length')).toEqual({ path: ['list', 'length'], isThere: false, value: undefined })
  for (const missing of ['list[2]', 'x.y', 'date.x', 'toString', 'list.map']) expect(follow(missing).isThere).toBe(false)
})
