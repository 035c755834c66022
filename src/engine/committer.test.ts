import { describe, expect, it } from 'vitest'
import { HoldfastError } from '../model/errors.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import { Committer } from './committer.ts'

describe('Committer', { timeout: 5_000 }, () => {
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
})

interface Write {
  readonly batch: string[]
  succeed(): void
  fail(error: Error): void
}

/** A store whose commits wait to be told how they end. */
function slowStore() {
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
  return { committer: new Committer({ commit } as unknown as Store), writes }
}

/** The name goes where the batch can show it. */
function changeOf(name: string, leaseId = name): Change {
  return { owner: '', threadId: name, runId: name, guard: { kind: 'lease', epoch: 1, leaseId }, events: [], isCheckpoint: false }
}
