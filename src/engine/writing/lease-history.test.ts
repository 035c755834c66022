import { describe, expect, it } from 'vitest'
import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Store, Thread } from '../../store/store.ts'
import { BegunEffects } from './begun-effects.ts'
import { Committer } from './committer.ts'
import { LeaseHistory } from './lease-history.ts'

describe('LeaseHistory', () => {
  it('H1: a change is sent with what was acknowledged before it was sent, not before it was handed in', async () => {
    const { committer, batches } = storeOf(() => 'ok')
    const history = new LeaseHistory(thread({ writtenSeq: 4 }))
    const first = committer.commit(changeOf(1), true, history)
    const second = committer.commit(changeOf(2), true, history)
    await Promise.all([first, second])
    await committer.commit(changeOf(0), true, history)
    await committer.commit(changeOf(1), true, history)
    expect(batches).toEqual([[4, 4], [7], [7]])
    expect(history.writtenSeq).toBe(8)
  })

  it('H1: one that is sent again after an outage is stamped anew', async () => {
    const answers = ['outage', 'ok', 'ok']
    const { committer, batches } = storeOf(() => answers.shift() ?? 'ok')
    const history = new LeaseHistory(thread({ writtenSeq: 4 }))
    await committer.commit(changeOf(1), true, history)
    await committer.commit(changeOf(1), true, history)
    expect(batches).toEqual([[4], [4], [5]])
  })

  it('H2: once the lease is lost nothing more is sent under it', async () => {
    const { committer, batches } = storeOf(() => 'lease_lost')
    const history = new LeaseHistory(thread({ writtenSeq: 4 }))
    const other = new LeaseHistory(thread({ writtenSeq: 9 }))
    const answer = committer.commit(changeOf(1), true, history)
    expect(await answer).toMatchObject({ ok: false, refusal: 'lease_lost' })
    const behind = [committer.commit(changeOf(1), true, history), committer.commit(changeOf(1), true, other)]
    expect(await Promise.all(behind)).toMatchObject([{ refusal: 'lease_lost' }, { refusal: 'lease_lost' }])
    expect(batches).toEqual([[4], [9]])
  })

  it('names the state by the last patch that was acknowledged', () => {
    const history = new LeaseHistory(thread({ patchSeq: 3, patchChecksum: 77 }))
    expect(history.patch).toMatchObject({ patchSeq: 3, patchChecksum: 77 })
    const change = { ...changeOf(3), isCheckpoint: true, events: [event(null), event('[1]'), event(null)] }
    history.note(change, ok(5, 7))
    const record = { ...event('[1]'), runId: 'r', isCheckpoint: false }
    expect(history.patch).toEqual({
      patchSeq: 6,
      patchChecksum: sealChecksum(recordChecksum({ owner: '', threadId: 't' }, record), 6),
    })
    history.note(changeOf(1), ok(8, 8))
    expect(history.patch.patchSeq).toBe(6)
  })
})

describe('BegunEffects', () => {
  const intent = (at: number) => ({ name: 'send', event: event(null), at })
  const stored = (fields: Partial<Operation>) => ({ runId: 'r', status: 'intended', intendedAt: 0, ...fields }) as Operation

  it('looks no further back than to the first that the store has as it was acknowledged', async () => {
    const effects = new BegunEffects()
    for (let n = 1; n <= 5; n++) effects.intended(`k${n}`, intent(n))
    const asked: string[] = []
    const forgotten = await effects.forgotten('r', async (key) => {
      asked.push(key)
      return Number(key.slice(1)) <= 3 ? stored({ intendedAt: Number(key.slice(1)) }) : null
    })
    expect(asked).toEqual(['k5', 'k4', 'k3'])
    expect(forgotten.map(({ effect, isIntentLost }) => [effect.key, isIntentLost])).toEqual([
      ['k4', true],
      ['k5', true],
    ])
  })

  it('knows an answer that the store has lost, and one that came too late for it', async () => {
    const effects = new BegunEffects()
    effects.intended('completed', intent(1))
    effects.answered('completed', { result: '1', at: 1 })
    effects.completed('completed')
    effects.intended('late', intent(2))
    effects.answered('late', { result: '2', at: 2 })
    effects.intended('closed', intent(3))
    effects.closed('closed')
    const at: Record<string, number> = { completed: 1, late: 2 }
    const read = async (key: string) => stored({ intendedAt: at[key] ?? 0 })
    expect((await effects.forgotten('r', read)).map(({ effect }) => effect.key)).toEqual(['late'])
    effects.closed('late')
    expect(await effects.forgotten('r', read)).toMatchObject([{ effect: { key: 'completed' }, isIntentLost: false }])
  })

  it('takes an earlier attempt under the same key for what it is, and an intent that was written again for enough', async () => {
    const effects = new BegunEffects()
    effects.intended('k', intent(7))
    expect(await effects.forgotten('r', async () => stored({ status: 'failed', intendedAt: 5 }))).toHaveLength(1)
    expect(await effects.forgotten('r', async () => stored({ status: 'intended', intendedAt: 9 }))).toEqual([])
    expect(await effects.forgotten('r', async () => stored({ status: 'unsure', intendedAt: 7 }))).toEqual([])
    expect(await effects.forgotten('other', async () => stored({ intendedAt: 7 }))).toHaveLength(1)
  })
})

/** A store that answers each batch as it is told, and the positions that its changes named. */
function storeOf(next: () => string) {
  const batches: (number | undefined)[][] = []
  let head = 4
  const commit = async (changes: readonly Change[]): Promise<readonly Committed[]> => {
    batches.push(changes.map(({ guard }) => (guard.kind === 'lease' ? guard.writtenSeq : undefined)))
    const answer = next()
    if (answer === 'outage') throw new HoldfastError('store_unavailable', 'away')
    if (answer === 'lease_lost') return changes.map(() => ({ ok: false, refusal: 'lease_lost' }))
    return changes.map(({ events }) => {
      head += events.length
      return ok(head - events.length + 1, head)
    })
  }
  return { committer: new Committer({ commit } as unknown as Store), batches }
}

function ok(firstSeq: number, lastSeq: number): Committed {
  return { ok: true, firstSeq, lastSeq, now: 0, created: [], hasMail: false }
}

function thread(fields: Partial<Thread>): Thread {
  return { owner: '', threadId: 't', headSeq: 4, writtenSeq: 0, patchSeq: 0, patchChecksum: 0, ...fields } as Thread
}

function event(patch: string | null): NewEvent {
  return { type: 'step_completed', step: 'a', count: 1, attempt: 1, at: 1, durationMs: 1, payload: null, patch }
}

function changeOf(eventCount: number): Change {
  const events = Array.from({ length: eventCount }, () => event(null))
  const guard = { kind: 'lease', epoch: 1, leaseId: 'l' } as const
  return { owner: '', threadId: 't', runId: 'r', guard, events, isCheckpoint: false }
}
