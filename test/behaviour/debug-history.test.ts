import { applyChanges, type EventType, type History, type HistoryEvent, open } from 'holdfast'
import { expect, it } from 'vitest'
import { applyPatch, diffUpdate } from '../../src/model/patch.ts'

interface Entry {
  readonly step: string
  readonly state: Record<string, unknown>
}

/** What another system might keep: a list of states, each after a step. */
function historyOf(entries: readonly Entry[]): History {
  const idAt = (position: number) => `entry-${position}`
  const positionOf = (id: string) => Number(id.slice('entry-'.length))
  const stateAt = (position: number): unknown => (position < 1 ? undefined : entries[position - 1]?.state)
  const all = entries.map(({ step, state }, index): HistoryEvent => {
    const position = index + 1
    return {
      ...{ id: idAt(position), position, at: position * 1_000, type: 'step_completed' as EventType, runId: 'r', step },
      ...{ count: 1, attempt: 1, durationMs: 5, isCheckpoint: true, data: { result: step }, backTo: null },
      patch: diffUpdate(stateAt(position - 1) ?? {}, () => state),
    }
  })
  const between = (after: string | undefined, to: string | undefined) =>
    all.filter(
      ({ position }) =>
        position > (after === undefined ? 0 : positionOf(after)) && position <= (to === undefined ? 1e9 : positionOf(to)),
    )
  const history: History = {
    ...{ name: 'a list of states', runId: null, idAt, positionOf },
    checkpoints: async ({ after, limit }) =>
      between(after, undefined)
        .slice(0, limit)
        .map(({ id, at, runId, step, position }) => ({
          ...{ id, at, runId, step, label: null, bytes: 10 },
          parent: position === 1 ? null : idAt(position - 1),
        })),
    find: async (id) => id,
    stateAt: async (id) => stateAt(id === null ? 0 : positionOf(id)),
    stateBefore: async (id) => stateAt(positionOf(id) - 1),
    event: async (id) => all[positionOf(id) - 1] as HistoryEvent,
    whole: () => history,
    origin: async () => null,
    voidedBy: async () => [],
    events: async ({ after, to, types }) => between(after, to).filter(({ type }) => types === undefined || types.includes(type)),
    changes: async ({ after, to, newestFirst }) => (newestFirst ? between(after, to).toReversed() : between(after, to)),
  }
  return history
}

it('a history that is not in the store is read like one that is', async () => {
  await using hf = await open('memory:', { worker: false })
  const entries = [
    { step: 'ask', state: { messages: ['hello'], mood: 'curious' } },
    { step: 'think', state: { messages: ['hello'], mood: 'thoughtful', plan: { tool: 'search' } } },
    { step: 'answer', state: { messages: ['hello', 'found it'], mood: 'thoughtful', plan: { tool: 'search' } } },
  ]
  const history = historyOf(entries)
  expect(
    (await hf.debug.timeline(history)).map(({ checkpoint, stepCount, messageCount }) => [checkpoint, stepCount, messageCount]),
  ).toEqual([
    ['entry-1', 1, 1],
    ['entry-2', 2, 1],
    ['entry-3', 3, 2],
  ])
  expect((await hf.debug.timeline(history, { after: 'entry-1', buckets: 1 })).map(({ checkpoints }) => checkpoints)).toEqual([2])
  expect((await hf.debug.replay(history)).map(({ name, state }) => ({ step: name, state }))).toEqual(entries)
  const { changes, ...counts } = await hf.debug.diff('entry-1', 'entry-3', { in: history })
  expect(counts).toEqual({ messagesAdded: 1, stepsAdded: 2, memory: [], artifacts: [] })
  expect(applyChanges(entries[0]?.state, changes)).toEqual(entries[2]?.state)
  expect(await hf.debug.blame('entry-3', 'mood', { in: history })).toMatchObject({
    last: { step: 'think' },
    before: [{ step: 'ask' }],
  })
  expect(await hf.debug.blame('entry-3', 'messages[1]', { in: history })).toMatchObject({ last: { step: 'answer' } })
  expect(await hf.debug.audit(history)).toEqual([])
  expect(applyPatch(entries[0]?.state, (await history.event('entry-2')).patch ?? [])).toEqual(entries[1]?.state)
})

it('a history that can not be read says what it lacks', async () => {
  await using hf = await open('memory:', { worker: false })
  const { stateAt: _, changes: __, ...history } = historyOf([])
  await expect(hf.debug.timeline(history as never)).rejects.toMatchObject({
    code: 'invalid_input',
    message: 'That is neither an id nor a History: it has no stateAt(), changes().',
  })
})
