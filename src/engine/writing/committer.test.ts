import { describe, expect, it } from 'vitest'
import { HoldfastError } from '../../model/errors.ts'
import { type Logger, silentLogger } from '../../model/logger.ts'
import type { Change, Committed, NewRun } from '../../store/change.ts'
import type { Store } from '../../store/store.ts'
import { Committer } from './committer.ts'

describe('Committer', () => {
  it('C1: acknowledges when the store has, not before', async () => {
    const { committer, writes } = slowStore()
    let isAcknowledged = false
    const commit = committer.commit(changeOf('a')).then(() => {
      isAcknowledged = true
    })
    const write = await writes.next()
    expect(isAcknowledged).toBe(false)
    write.succeed()
    await commit
    expect(isAcknowledged).toBe(true)
  })

  it('gathers what arrives while it is busy into one batch', async () => {
    const { committer, writes } = slowStore()
    const commits = [committer.commit(changeOf('a'))]
    const first = await writes.next()
    commits.push(committer.commit(changeOf('b')), committer.commit(changeOf('c')))
    first.succeed()
    const second = await writes.next()
    second.succeed()
    await Promise.all(commits)
    expect([first.batch, second.batch]).toEqual([['a'], ['b', 'c']])
  })

  it('C2: keeps the order when a store that was not available is tried again', async () => {
    const { committer, writes } = slowStore()
    const commits = [committer.commit(changeOf('a'), true)]
    const first = await writes.next()
    commits.push(committer.commit(changeOf('b'), true))
    first.fail(new HoldfastError('store_unavailable', 'away'))
    const second = await writes.next()
    second.succeed()
    await Promise.all(commits)
    expect(second.batch).toEqual(['a', 'b'])
  })

  it('C3: finds the change that breaks its batch by writing one by one', async () => {
    const { committer, writes } = slowStore()
    const commits = Promise.allSettled(['a', 'bad', 'c'].map((name) => committer.commit(changeOf(name))))
    for (let turn = 0; turn < 4; turn++) {
      const write = await writes.next()
      if (write.batch.includes('bad')) write.fail(new Error('broken'))
      else write.succeed()
    }
    expect((await commits).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  })

  it('C4: does not try a batch again whose outcome is not known', async () => {
    const { committer, writes } = slowStore()
    const commits = Promise.allSettled(['a', 'b'].map((name) => committer.commit(changeOf(name), true)))
    const first = await writes.next()
    first.fail(new HoldfastError('outcome_unknown', 'who knows'))
    expect((await commits).map((settled) => settled.status === 'rejected' && settled.reason.code)).toEqual([
      'outcome_unknown',
      'outcome_unknown',
    ])
    expect(await writes.isQuiet()).toBe(true)
  })

  it('C4: writes nothing of a lease behind a change of it that failed, and goes on with others', async () => {
    const { committer, writes } = slowStore()
    const failed = committer.commit(changeOf('a1', 'a'), true)
    const first = await writes.next()
    const behind = committer.commit(changeOf('a2', 'a'), true)
    const other = committer.commit(changeOf('b1', 'b'), true)
    first.fail(new HoldfastError('outcome_unknown', 'who knows'))
    await expect(failed).rejects.toMatchObject({ code: 'outcome_unknown' })
    await expect(behind).rejects.toMatchObject({ code: 'outcome_unknown' })
    await expect(committer.commit(changeOf('a3', 'a'), true)).rejects.toMatchObject({ code: 'outcome_unknown' })
    const second = await writes.next()
    expect(second.batch).toEqual(['b1'])
    second.succeed()
    expect(await other).toMatchObject({ ok: true })
  })

  it('close refuses what the store does not take in time, and calls unknown what it took and does not answer for', async () => {
    const lines: string[] = []
    const { committer, writes } = slowStore({ log: { ...silentLogger, error: (message) => lines.push(message) } })
    const taken = committer.commit(changeOf('a'), true)
    await writes.next()
    const waiting = committer.commit(changeOf('b'), true)
    const closing = committer.close({ limitMs: 10, answerMs: 30 })
    await expect(waiting).rejects.toMatchObject({ code: 'closed' })
    await expect(taken).rejects.toMatchObject({ code: 'outcome_unknown' })
    await closing
    expect(lines).toEqual([expect.stringContaining('did not answer')])
    await expect(committer.commit(changeOf('c'))).rejects.toMatchObject({ code: 'closed' })
  })

  it('close waits for an answer that comes', async () => {
    const { committer, writes } = slowStore()
    const taken = committer.commit(changeOf('a'), true)
    const write = await writes.next()
    const closing = committer.close({ limitMs: 10, answerMs: 5_000 })
    await new Promise((resolve) => setTimeout(resolve, 30))
    write.succeed()
    await closing
    expect(await taken).toMatchObject({ ok: true })
  })
})

describe('Committer, with a store that can pipeline', () => {
  const names = (prefix: string, count: number) => Array.from({ length: count }, (_, index) => `${prefix}${index}`)
  const pipelined = () => slowStore({ canPipeline: true, maxBatch: 100 })

  it('sends a second batch while the first is under way, and not a third', async () => {
    const { committer, writes } = pipelined()
    const commits = Promise.all(names('r', 300).map((name) => committer.commit(changeOf(name))))
    const [first, second] = [await writes.next(), await writes.next()]
    expect([first.batch.length, second.batch.length]).toEqual([100, 100])
    expect(await writes.isQuiet()).toBe(true)
    second.succeed()
    const third = await writes.next()
    expect([...first.batch, ...second.batch, ...third.batch]).toEqual(names('r', 300))
    for (const write of [first, third]) write.succeed()
    await commits
  })

  it('counts one turn for two batches that are answered in the same turn of the event loop', async () => {
    const { committer, writes } = pipelined()
    const turns: number[] = []
    const commits = names('r', 200).map((name) => committer.commit(changeOf(name)).then(() => turns.push(committer.turn)))
    const [first, second] = [await writes.next(), await writes.next()]
    first.succeed()
    // A few microtasks later: what the first set off may be under way already.
    for (let i = 0; i < 20; i++) await null
    second.succeed()
    await Promise.all(commits)
    expect(new Set(turns)).toEqual(new Set([1]))
    await new Promise((resolve) => setImmediate(resolve))
    const later = committer.commit(changeOf('later'))
    ;(await writes.next()).succeed()
    await later
    expect(committer.turn).toBe(2)
  })

  it('gathers a few instead of sending them ahead', async () => {
    const { committer, writes } = pipelined()
    const commits = [committer.commit(changeOf('a'))]
    const first = await writes.next()
    commits.push(...names('r', 20).map((name) => committer.commit(changeOf(name))))
    expect(await writes.isQuiet()).toBe(true)
    first.succeed()
    const second = await writes.next()
    expect(second.batch).toHaveLength(20)
    second.succeed()
    await Promise.all(commits)
  })

  it('C2: sends nothing ahead that concerns a thread of the batch under way, nor what stands behind such a change', async () => {
    const { committer, writes } = pipelined()
    const commits = [committer.commit(changeOf('busy', 'l1'))]
    const first = await writes.next()
    const parent = { ...changeOf('busy', 'l2'), creates: [{ owner: '', threadId: 'child' } as NewRun] }
    commits.push(committer.commit(parent), committer.commit(changeOf('child')))
    commits.push(...names('r', 70).map((name) => committer.commit(changeOf(name))))
    const second = await writes.next()
    expect(second.batch).toEqual(names('r', 70))
    second.succeed()
    first.succeed()
    const third = await writes.next()
    expect(third.batch).toEqual(['busy', 'child'])
    third.succeed()
    await Promise.all(commits)
  })

  it('C2: a batch that was not written is tried again before what came after it, whatever became of the other one', async () => {
    const { committer, writes } = pipelined()
    const commits = names('a', 100).map((name) => committer.commit(changeOf(name), true))
    const first = await writes.next()
    commits.push(...names('b', 100).map((name) => committer.commit(changeOf(name), true)))
    const second = await writes.next()
    commits.push(...names('a', 5).map((name) => committer.commit(changeOf(name), true)))
    first.fail(new HoldfastError('store_unavailable', 'away'))
    second.succeed()
    const written: string[] = []
    while (written.length < 105) {
      const write = await writes.next()
      written.push(...write.batch)
      write.succeed()
    }
    await Promise.all(commits)
    expect(written).toEqual([...names('a', 100), ...names('a', 5)])
  })

  it('C3: looks for the change that breaks a batch with nothing else under way', async () => {
    const { committer, writes } = pipelined()
    const commits = names('a', 99)
      .concat('bad')
      .map((name) => committer.commit(changeOf(name)))
    const first = await writes.next()
    commits.push(...names('b', 100).map((name) => committer.commit(changeOf(name))))
    const second = await writes.next()
    first.fail(new Error('broken'))
    expect(await writes.isQuiet()).toBe(true)
    second.succeed()
    for (let turn = 0; turn < 100; turn++) {
      const write = await writes.next()
      expect(write.batch).toHaveLength(1)
      if (write.batch.includes('bad')) write.fail(new Error('broken'))
      else write.succeed()
    }
    const failed = (await Promise.allSettled(commits)).filter(({ status }) => status === 'rejected')
    expect(failed).toHaveLength(1)
  })
})

interface Write {
  readonly batch: string[]
  succeed(): void
  fail(error: Error): void
}

/** A store whose commits wait to be told how they end. */
function slowStore({ canPipeline = false, ...options }: { canPipeline?: boolean; maxBatch?: number; log?: Logger } = {}) {
  const waiting: Write[] = []
  let wake = () => {}
  const commit = (changes: readonly Change[]): Promise<readonly Committed[]> =>
    new Promise((resolve, reject) => {
      const answers = changes.map((): Committed => ({ ok: true, firstSeq: 1, lastSeq: 1, now: 0, created: [], hasMail: false }))
      waiting.push({ batch: changes.map(({ threadId }) => threadId), succeed: () => resolve(answers), fail: reject })
      wake()
    })
  const writes = {
    async next(): Promise<Write> {
      while (waiting.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
      return waiting.shift() as Write
    },
    async isQuiet(): Promise<boolean> {
      await new Promise((resolve) => setTimeout(resolve, 50))
      return waiting.length === 0
    },
  }
  return { committer: new Committer({ commit, canPipeline } as unknown as Store, options), writes }
}

/** The name goes where the batch can show it. */
function changeOf(name: string, leaseId = name): Change {
  return { owner: '', threadId: name, runId: name, guard: { kind: 'lease', epoch: 1, leaseId }, events: [], isCheckpoint: false }
}
