import { afterEach, expect, test, vi } from 'vitest'
import type { RecordChange } from '../model/record.ts'
import { createMemoryStore } from '../stores/memory/memory-store.ts'
import { SubjectVectors } from './subject-vectors.ts'
import { putBatch } from './vector-records.ts'

afterEach(() => void vi.useRealTimers())

test('vectors are read as they are added, and all of them anew where the store has forgotten some', async () => {
  const store = createMemoryStore()
  const alone = { owner: '', threadId: '', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: false } as const
  const write = async (...records: readonly RecordChange[]) =>
    expect(await store.commit([{ ...alone, records }])).toMatchObject([{ ok: true }])
  const batch = (ids: string[], ...values: number[]) => ({ model: 'm', ids, values: Float32Array.from(values) })
  const vectors = new SubjectVectors({ store, owner: '', subject: 's', model: 'm' })
  const nearest = async (x: number, y: number) => {
    await vectors.refresh()
    return vectors.nearest(Float32Array.from([x, y]), 2).map(({ id, similarity }) => [id, similarity])
  }
  expect(await nearest(1, 0)).toEqual([])
  await write(putBatch('s', 1, batch(['a', 'b'], 1, 0, 0, 1)), putBatch('other', 1, batch(['x'], 1, 0)))
  expect(await nearest(1, 0)).toEqual([
    ['a', 1],
    ['b', 0],
  ])
  const second = putBatch('s', 2, batch(['c', 'a'], 1, 0, 0, 1))
  await write(second)
  expect(await nearest(1, 0)).toEqual([
    ['c', 1],
    ['a', 0],
  ])
  expect(vectors.nearest(Float32Array.from([1]), 2)).toEqual([])
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 100_000 })
  expect(await nearest(1, 0)).toEqual([
    ['c', 1],
    ['a', 0],
  ])
  if (second.kind === 'put') await write({ kind: 'delete', collection: second.collection, key: second.key })
  vi.setSystemTime(Date.now() + 100_000)
  expect(await nearest(1, 0)).toEqual([
    ['a', 1],
    ['b', 0],
  ])
})
