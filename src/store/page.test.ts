import { expect, test } from 'vitest'
import { codeOf } from '../model/errors.ts'
import { pageOf, readCursor } from './page.ts'

const shown = { numberOf: (row: number) => row, toItem: (row: number) => `row ${row}` }

test('a page ends with a cursor where one row more was read than it shows', () => {
  expect(pageOf([4, 7, 9], 2, shown)).toEqual({ items: ['row 4', 'row 7'], cursor: 'n7' })
  expect(pageOf([4, 7], 2, shown)).toEqual({ items: ['row 4', 'row 7'] })
  expect(pageOf([4], 0, shown)).toEqual({ items: [] })
})

test('the next page begins after the number in the cursor', () => {
  expect([readCursor(undefined), readCursor('n7')]).toEqual([0, 7])
})

test.each(['', '7', 'n', 'n-7', 'n7.1', `n${'9'.repeat(16)}`])('the cursor %o is refused with invalid_input', (cursor) => {
  let code: unknown
  try {
    readCursor(cursor)
  } catch (error) {
    code = codeOf(error)
  }
  expect(code).toBe('invalid_input')
})
