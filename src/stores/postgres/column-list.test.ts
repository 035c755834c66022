import { expect, it } from 'vitest'
import { ColumnList } from './column-list.ts'
import { encodeBatch } from './commit.ts'
import { commitParameters } from './commit-parameters.ts'
import { Leases } from './leases.ts'

const list = new ColumnList('row', { id: 'int', name: 'text', body: 'payload' })

it('the parameters, the rows and the values of a list are in one order', () => {
  expect(list.parameters).toEqual([
    { name: 'row_id', type: 'int[]' },
    { name: 'row_name', type: 'text[]' },
    { name: 'row_body', type: 'text[]' },
    { name: 'row_body_bytes', type: 'bytea[]' },
  ])
  expect(list.rowsSql(['body', 'id'], { as: 'a', also: { before: 'v_before' }, number: 'slot' })).toBe(
    '(SELECT row_body[n.at::int] AS body, row_body_bytes[n.at::int] AS body_bytes, row_id[n.at::int] AS id, v_before[n.at::int] AS before, n.at AS slot FROM unnest(row_id) WITH ORDINALITY AS n(value, at)) a',
  )
  const columns = list.createEncoders(2)
  columns.id.push(7)
  columns.name.push(null)
  columns.body.push('text')
  const [id, name, text, bytes] = list.encode(columns)
  expect((id as Buffer).readInt32BE(24)).toBe(7)
  expect(name).toBeNull()
  expect((text as Buffer).toString('latin1').endsWith('text')).toBe(true)
  expect(bytes).toBeNull()
  expect(list.noRows).toEqual([null, null, null, null])
})

it('nulls before the first value of a column are kept', () => {
  const { id } = list.createEncoders(1)
  for (const value of [null, null, 5, null]) id.push(value)
  const encoded = id.encode() as Buffer
  expect(encoded.readInt32BE(12)).toBe(4)
  const lengths = [encoded.readInt32BE(20), encoded.readInt32BE(24), encoded.readInt32BE(28), encoded.readInt32BE(36)]
  expect(lengths).toEqual([-1, -1, 4, -1])
  expect(encoded.readInt32BE(32)).toBe(5)
})

it('a batch has a value for each parameter of fn_commit but the two of its writer', () => {
  const { values } = encodeBatch([], { offset: 0, isDurable: true, leases: new Leases() })
  expect(values.length).toBe(commitParameters.length - 2)
  expect(new Set(commitParameters.map(({ name }) => name)).size).toBe(commitParameters.length)
})
