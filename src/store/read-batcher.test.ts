import { expect, it } from 'vitest'
import { ReadBatcher } from './read-batcher.ts'

it('reads that are asked for in one turn share a statement, and each gets its own answer', async () => {
  const { batcher, sent } = createBatcher()
  expect(await Promise.all([batcher.read(1), batcher.read(2), batcher.read(3)])).toEqual([10, 20, 30])
  expect(sent).toEqual([[1, 2, 3]])
})

it('no statement reads more keys than the limit', async () => {
  const { batcher, sent } = createBatcher({ maxKeys: 2 })
  expect(await Promise.all([1, 2, 3, 4, 5].map((key) => batcher.read(key)))).toEqual([10, 20, 30, 40, 50])
  expect(sent.map((keys) => keys.length)).toEqual([2, 2, 1])
})

it('with two statements in flight, later reads share the next one', async () => {
  const { batcher, sent, answer } = createBatcher({ isHeldUp: true })
  const first = batcher.read(1)
  await turn()
  const second = batcher.read(2)
  await turn()
  const others = [3, 4, 5].map((key) => batcher.read(key))
  await turn()
  expect(sent).toEqual([[1], [2]])
  answer()
  expect(await Promise.all([first, second, ...others])).toEqual([10, 20, 30, 40, 50])
  expect(sent).toEqual([[1], [2], [3, 4, 5]])
})

it('a statement that fails rejects its own reads and no others', async () => {
  let isBroken = true
  const batcher = new ReadBatcher<number, number>(async (keys) => {
    if (isBroken) throw new Error('no connection')
    return keys
  })
  const failed = await Promise.allSettled([batcher.read(1), batcher.read(2)])
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  isBroken = false
  expect(await batcher.read(3)).toBe(3)
})

function createBatcher({ maxKeys = 250, isHeldUp = false } = {}) {
  const sent: (readonly number[])[] = []
  let answer = () => {}
  const held = isHeldUp
    ? new Promise<void>((resolve) => {
        answer = resolve
      })
    : Promise.resolve()
  const batcher = new ReadBatcher<number, number>(async (keys) => {
    sent.push(keys)
    await held
    return keys.map((key) => key * 10)
  }, maxKeys)
  return { batcher, sent, answer: () => answer() }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
