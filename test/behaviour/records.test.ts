import { copyStore, open, type ThreadBundle, workflow } from 'holdfast'
import { createMemoryStore, wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import { createCodec } from '../../src/model/codec.ts'
import type { RecordChange } from '../../src/model/record.ts'
import { sweepExpired } from '../../src/retention/sweep-expired.ts'
import type { Store } from '../../src/store/store.ts'
import { Chores } from '../../src/worker/chores.ts'
import { codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

const greet = workflow('greet', (ctx) => ctx.step('say', () => 'hello'))

type Put = Extract<RecordChange, { kind: 'put' }>

function put(key: string, fields: Partial<Put> = {}): Put {
  return {
    kind: 'put',
    collection: 'notes',
    key,
    parent: 'p',
    threadId: null,
    fields: [],
    payload: `"${key}"`,
    expires: 'never',
    ...fields,
  }
}

async function write(store: Store, owner: string, ...records: readonly RecordChange[]): Promise<void> {
  const change = { owner, threadId: '', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: false, records } as const
  expect(await store.commit([change])).toMatchObject([{ ok: true }])
}

async function read(store: Store, owner: string) {
  return store.readRecords({ owner, collection: 'notes', limit: 1_000 })
}

onEveryStore('records', ({ openWrapped, advance }) => {
  async function openBoth() {
    const opened: Store[] = []
    const hf = await openWrapped(
      (store) => {
        opened.push(store)
        return store
      },
      { workflows: [greet] },
    )
    return { hf, store: opened[0] as Store }
  }

  it('of a thread are in its bundle, and in the store that it is imported into', async () => {
    const { hf, store } = await openBoth()
    await hf.run(greet, undefined, { id: 't' })
    const without = await hf.debug.export('t')
    expect(without.content.records).toBeUndefined()
    const fields = [{ name: 'tag', value: 'x' }]
    await write(
      store,
      '',
      put('a', { threadId: 't', fields, payload: new Uint8Array([0, 255]) }),
      put('b'),
      put('c', { threadId: 't', expires: { inMs: 1_000 } }),
    )
    await write(store, '', put('a', { threadId: 't', fields, payload: new Uint8Array([0, 255]), expires: { inMs: 3_600_000 } }))
    advance(2_000)
    const text = JSON.stringify(await hf.debug.export('t'))
    const there = createMemoryStore()
    const other = await open(there, { worker: false, logger: false })
    await other.as('bob').debug.import(text)
    const [a] = await read(store, '')
    expect(await read(there, 'bob')).toEqual([{ ...a, owner: 'bob' }])

    for (const spoil of [
      ({ records: [one] }: { records: object[] }) => ({ records: [one, one] }),
      ({ records: [one] }: { records: object[] }) => ({ records: [{ ...one, payload: null }] }),
      ({ records: [one] }: { records: object[] }) => ({ records: [{ ...one, version: 'x' }] }),
    ]) {
      const bundle = JSON.parse(text) as ThreadBundle
      const content = { ...bundle.content, ...spoil(bundle.content as unknown as { records: object[] }) }
      expect(['invalid_input', 'corrupt_record']).toContain(
        await codeOfRejection(other.as('eve').debug.import({ ...bundle, content })),
      )
      expect(await read(there, 'eve')).toEqual([])
    }
    await other.close()
  })

  it('are copied with the store, those of threads and those of none, and compared', async () => {
    const { hf, store } = await openBoth()
    await hf.run(greet, undefined, { id: 't' })
    for (const owner of ['', 'ann', 'x:y']) {
      for (let n = 0; n < 3; n++) await write(store, owner, put(`${n}`, { payload: `${n}` }), put('again'))
      await write(store, owner, put('of a thread', { threadId: 't' }), put('of none yet', { threadId: 'none' }))
      await write(store, owner, put('soon gone', { expires: { inMs: 10_000 } }), put('gone', { expires: { inMs: 1_000 } }))
    }
    advance(2_000)
    const there = createMemoryStore()
    const report = await copyStore(store, there)
    expect(report).toMatchObject({ threads: 1, memories: 21 })
    for (const owner of ['', 'ann', 'x:y']) {
      const [here, copied] = [await read(store, owner), await read(there, owner)]
      expect(copied).toEqual(here)
      expect(here.map(({ key, version }) => [key, version]).slice(0, 4)).toEqual([
        ['0', 1],
        ['1', 1],
        ['2', 1],
        ['again', 3],
      ])
    }
    expect(await copyStore(store, there)).toEqual(report)
    await write(there, 'ann', put('1', { payload: '"other"' }))
    expect(await codeOfRejection(copyStore(store, there))).toBe('conflict')
  })

  it('are verified: one that is damaged is named', async () => {
    const { hf, store } = await openBoth()
    await hf.run(greet, undefined, { id: 't' })
    await write(store, 'ann', ...Array.from({ length: 20 }, (_, n) => put(`${n}`)))
    expect(await hf.verify()).toMatchObject({ isSound: true, memories: 20, damaged: [] })
    await write(store, 'ann', put('spoilt', { payload: '{"half' }))
    const { isSound, damaged, memories } = await hf.verify()
    expect([isSound, memories]).toEqual([false, 21])
    expect(damaged).toMatchObject([{ owner: 'ann', what: 'memory', message: expect.stringContaining('"spoilt" in notes') }])
  })

  it('that have expired are deleted by a chore, in parts', async () => {
    const { store } = await openBoth()
    const many = Array.from({ length: 450 }, (_, n) => put(`${n}`, { expires: { inMs: 1_000 } }))
    await write(store, '', ...many, put('kept'))
    expect(await sweepExpired(store, { isStopping: () => false })).toBe(0)
    advance(2_000)
    const parts: unknown[] = []
    const watched = wrapStore(store, { after: (act, _, __, answer) => void (act === 'sweepRecords' && parts.push(answer)) })
    expect(await sweepExpired(watched, { isStopping: () => true })).toBe(0)
    expect(await sweepExpired(watched, { isStopping: () => false })).toBe(450)
    expect(parts).toEqual([200, 200, 50])
    expect((await read(store, '')).map(({ key }) => key)).toEqual(['kept'])
  })

  it('cost a run that has none nothing: no act of a store more than before', async () => {
    const acts: string[] = []
    const hf = await openWrapped((store) => wrapStore(store, { before: (act) => void acts.push(act) }), { workflows: [greet] })
    expect(await hf.run(greet)).toBe('hello')
    expect(acts.filter((act) => /Records$/.test(act))).toEqual([])
  })
})

it('a worker deletes what has expired once a minute, and a failure is reported and tried again', async () => {
  vi.useFakeTimers()
  try {
    let answers: (() => Promise<number>)[] = []
    const errors: unknown[] = []
    const log = { debug() {}, info() {}, warn() {}, error: (_: string, data: unknown) => void errors.push(data) }
    const store = { ...createMemoryStore(), sweepRecords: () => (answers.shift() ?? (async () => 0))() }
    const chores = new Chores({ store, codec: createCodec(), log })
    chores.start()
    answers = [() => Promise.reject(new Error('no connection')), async () => 200, async () => 3]
    await vi.advanceTimersByTimeAsync(59_000)
    expect(answers).toHaveLength(3)
    await vi.advanceTimersByTimeAsync(17_000)
    expect(errors).toMatchObject([{ error: { message: 'no connection' } }])
    expect(answers).toHaveLength(2)
    await vi.advanceTimersByTimeAsync(76_000)
    expect(answers).toHaveLength(0)
    await chores.stop()
    answers = [async () => 1]
    await vi.advanceTimersByTimeAsync(300_000)
    expect(answers).toHaveLength(1)
  } finally {
    vi.useRealTimers()
  }
})
