import { expect } from 'vitest'
import { invariant } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import type { KeyedRecord, RecordChange } from '../../model/record.ts'
import { readWholeThread } from '../../store/read-whole-thread.ts'
import { compareKeys, compareRecords, type RecordQuery } from '../../store/record-query.ts'
import type { RecordSearch } from '../../store/record-search.ts'
import type { ThreadKey } from '../../store/store.ts'
import { plainPayload } from '../store-contents.ts'
import { change, leased, newRun, ok, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

type Put = Extract<RecordChange, { kind: 'put' }>

function put(key: string, fields: Partial<Put> = {}): Put {
  return {
    kind: 'put',
    collection: 'notes',
    key,
    parent: null,
    threadId: null,
    fields: [],
    payload: '1',
    expires: 'never',
    ...fields,
  }
}

function remove(
  key: string,
  fields: { readonly ifVersion?: number; readonly ifUpdatedAt?: number; readonly collection?: string } = {},
): RecordChange {
  return { kind: 'delete', collection: 'notes', key, ...fields }
}

function touch(key: string, inMs: number): RecordChange {
  return { kind: 'touch', collection: 'notes', key, expires: { inMs } }
}

/** A change of records only, from outside a run. */
function only(records: readonly RecordChange[], owner = '') {
  return change({ owner, threadId: '', records })
}

async function write(scene: Scene, ...records: readonly RecordChange[]): Promise<void> {
  ok(await scene.commit(only(records)))
}

async function read(scene: Scene, query: Partial<RecordQuery> = {}): Promise<readonly KeyedRecord[]> {
  return scene.store.readRecords({ owner: '', collection: 'notes', limit: 1_000, ...query })
}

async function keys(scene: Scene, query: Partial<RecordQuery> = {}): Promise<string[]> {
  return (await read(scene, query)).map(({ key }) => key)
}

async function record(scene: Scene, key: string, owner = ''): Promise<KeyedRecord | undefined> {
  return (await read(scene, { owner, where: { keys: [key] } }))[0]
}

async function all(scene: Scene, limit = 3, thread?: ThreadKey): Promise<KeyedRecord[]> {
  const found: KeyedRecord[] = []
  let cursor: string | undefined
  do {
    const page = await scene.store.scanRecords({
      limit,
      ...(thread !== undefined && { thread }),
      ...(cursor !== undefined && { cursor }),
    })
    found.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return found.sort(compareRecords)
}

const text = (payload: Payload | undefined) => plainPayload(payload ?? null)

/** Names that a pattern, a quote or a separator would spoil, in bytewise order. */
const hostile = [
  ...["'", '"', '%', '*', '1', '1/', '10', 'A', '\\', '_', '__proto__', 'a', 'ab', 'tenant/1', 'tenant/10', 'x', 'x:y', 'é'],
  ...['\u{ffff}', '\u{1f600}', '[a]', '?', '(a', '-', '+', '\n', 'a\nb', 'a\nb\n'],
].sort(compareKeys)

export function testRecords(test: StoreTest): void {
  testAtomicity(test)
  testVersions(test)
  testLookups(test)
  testSearch(test)
  testExpiry(test)
  testWhole(test)
}

function testAtomicity(test: StoreTest): void {
  test('records are written with the events of their change, and come back byte for byte', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const bytes = new Uint8Array([0, 255, 10, 13, 0])
    const fields = [
      { name: 'kind', value: 'fact' },
      { name: 'tag', value: "it's %" },
      { name: 'tag', value: '_' },
    ]
    const events = [stepCompleted('a')]
    const written = await scene.write(claim, {
      events,
      records: [put('a', { payload: bytes, parent: 'p', threadId: 'r', fields }), put('b', { payload: '{"é":"\u{1f600}"}' })],
    })
    expect(written).toMatchObject({ firstSeq: 2, lastSeq: 2 })
    const [a, b] = await read(scene)
    expect(a).toMatchObject({
      owner: '',
      collection: 'notes',
      key: 'a',
      parent: 'p',
      threadId: 'r',
      fields,
      version: 1,
      expiresAt: null,
    })
    expect([text(a?.payload), text(b?.payload)]).toEqual(['bytes:00ff0a0d00', 'text:{"é":"\u{1f600}"}'])
    expect([a?.createdAt, a?.updatedAt]).toEqual([written.now, written.now])
    expect(b).toMatchObject({ parent: null, threadId: null, fields: [], version: 1 })
    if (!scene.canReopen) return
    await scene.reopen()
    expect(await read(scene)).toEqual([a, b])
  })

  test('a refused change writes none of its records, and its neighbours in the batch write theirs', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'send' } })
    const stale = leased({ ...claim, leaseId: 'other' }, { events: [stepCompleted('a')], records: [put('a')] })
    const taken = leased(claim, { records: [put('b')], operation: { kind: 'intend', key: 'k', name: 'send' } })
    const busy = change({ threadId: 'r', records: [put('c')], creates: [newRun({ id: 'n', threadId: 'r', ifBusy: 'reject' })] })
    const answers = await scene.commitAll([
      stale,
      only([put('x')]),
      taken,
      only([put('y')]),
      busy,
      leased(claim, { records: [put('z')] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['lease_lost', 'none', 'operation_taken', 'none', 'conflict', 'none'])
    expect(await keys(scene)).toEqual(['x', 'y', 'z'])
  })

  test('a change may consist of records only: under a lease, and from outside a run, where it makes no thread', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const before = await scene.thread('r')
    expect(await scene.write(claim, { records: [put('a')] })).toMatchObject({ firstSeq: before.headSeq, lastSeq: before.headSeq })
    expect(await scene.thread('r')).toEqual(before)
    expect(ok(await scene.commit(change({ threadId: 'nowhere', records: [put('b')] })))).toMatchObject({
      firstSeq: 0,
      lastSeq: 0,
    })
    expect(await scene.store.readThread({ owner: '', threadId: 'nowhere' })).toBeNull()
    expect(await keys(scene)).toEqual(['a', 'b'])
  })

  test('a change writes records beside an operation, a run of its own, messages and chunks', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, {
      events: [stepCompleted('a')],
      operation: { kind: 'intend', key: 'k', name: 'send' },
      creates: [newRun({ id: 'child' })],
      delivers: [{ owner: '', runId: 'child', kind: 'signal', name: 'go', payload: '1' }],
      run: { hasProgress: true, currentStep: 'b' },
      records: [put('a')],
    })
    expect(await keys(scene)).toEqual(['a'])
    expect((await scene.operation('k')).status).toBe('intended')
    expect((await scene.run('child')).status).toBe('pending')
    expect((await scene.run('r')).currentStep).toBe('b')
  })

  test('the SQL of a transaction and the records of its change are written together or not at all', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const { transact } = scene.store
    if (transact === undefined) return
    const { owner, id, threadId, epoch } = claim.run
    const guarded = { owner, runId: id, threadId, epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    const body = (records: readonly RecordChange[]) => async () => leased(claim, { events: [stepCompleted('a')], records })
    expect(refusalOf(await transact.call(scene.store, guarded, body([put('a'), put('b', { ifVersion: 3 })])))).toBe(
      'record_changed',
    )
    expect(await keys(scene)).toEqual([])
    ok(await transact.call(scene.store, guarded, body([put('a'), put('b', { ifVersion: 0 })])))
    expect(await keys(scene)).toEqual(['a', 'b'])
  })
}

function testVersions(test: StoreTest): void {
  test('a version counts the puts of a record, and begins again when it was deleted', async (scene) => {
    await write(scene, put('a', { payload: '1' }))
    const first = await record(scene, 'a')
    scene.advance(1_000)
    await write(scene, put('a', { payload: '2', parent: 'p' }))
    const second = await record(scene, 'a')
    expect(second).toMatchObject({ version: 2, payload: '2', parent: 'p', createdAt: first?.createdAt })
    expect((second?.updatedAt ?? 0) - (first?.updatedAt ?? 0)).toBeGreaterThanOrEqual(1_000)
    await write(scene, remove('a'))
    expect(await record(scene, 'a')).toBeUndefined()
    await write(scene, remove('a'))
    await write(scene, put('a', { payload: '3' }))
    expect(await record(scene, 'a')).toMatchObject({ version: 1, payload: '3', parent: null })
  })

  test('a change that expects another version is refused as record_changed with the record as it is, and nothing of it is written', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await write(
      scene,
      put('a', { payload: '"mine"', fields: [{ name: 'tag', value: 'x' }], expires: { inMs: 60_000 } }),
      put('b'),
    )
    await write(scene, put('b'))
    const [a, b] = await read(scene)
    const head = (await scene.thread('r')).headSeq
    const events = [stepCompleted('s')]
    const operation = { kind: 'intend', key: 'k', name: 'send' } as const
    const attempts: [readonly RecordChange[], KeyedRecord | null | undefined][] = [
      [[put('c'), put('a', { ifVersion: 0 })], a],
      [[put('c'), put('a', { ifVersion: 2 })], a],
      [[put('a', { ifVersion: 1 }), put('b', { ifVersion: 1 })], b],
      [[put('c', { ifVersion: 1 }), put('a', { ifVersion: 1 })], null],
      [[remove('b', { ifVersion: 1 }), put('c')], b],
      [[remove('c', { ifVersion: 1 })], null],
      // Of several that are refused the one with the first key is told of.
      [[put('b', { ifVersion: 7 }), put('a', { ifVersion: 7 })], a],
    ]
    for (const [records, found] of attempts) {
      const refused = { ok: false, refusal: 'record_changed', record: found }
      expect(await scene.commit(leased(claim, { events, operation, records }))).toEqual(refused)
      expect(await scene.commit(only(records))).toEqual(refused)
    }
    expect(await read(scene)).toEqual([a, b])
    expect((await scene.thread('r')).headSeq).toBe(head)
    expect(await scene.store.readOperation({ owner: '', key: 'k' })).toBeNull()

    await scene.write(claim, {
      events,
      operation,
      records: [put('a', { ifVersion: 1 }), remove('b', { ifVersion: 2 }), put('c', { ifVersion: 0 })],
    })
    expect((await read(scene)).map(({ key, version }) => [key, version])).toEqual([
      ['a', 2],
      ['c', 1],
    ])
  })

  test('a change that expects another put of the same version is refused as record_changed', async (scene) => {
    await write(scene, put('a'))
    await write(scene, put('a', { expires: { inMs: 60_000 } }))
    const [lost] = await read(scene)
    await write(scene, remove('a'))
    scene.advance(1_000)
    await write(scene, put('a'))
    await write(scene, put('a'))
    const [a] = await read(scene)
    const expected = { ifVersion: 2, ifUpdatedAt: lost?.updatedAt ?? 0 }
    expect(a?.version).toBe(lost?.version)
    const refused = { ok: false, refusal: 'record_changed', record: a }
    expect(await scene.commit(only([put('b'), put('a', expected)]))).toEqual(refused)
    expect(await scene.commit(only([put('b'), remove('a', expected)]))).toEqual(refused)
    const none = { ok: false, refusal: 'record_changed', record: null }
    expect(await scene.commit(only([put('c', { ifUpdatedAt: 1 })]))).toEqual(none)
    expect(await read(scene)).toEqual([a])
    await write(scene, put('a', { ...expected, ifUpdatedAt: a?.updatedAt ?? 0 }))
    await write(scene, remove('a', { ifUpdatedAt: (await record(scene, 'a'))?.updatedAt ?? 0 }))
    expect(await read(scene)).toEqual([])
  })

  test('later changes of a batch see the records of earlier ones', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const answers = await scene.commitAll([
      only([put('a', { ifVersion: 0 })]),
      leased(claim, { events: [stepCompleted('s')], records: [put('a', { ifVersion: 1, payload: '2' })] }),
      only([put('a', { ifVersion: 1 })]),
      only([remove('a', { ifVersion: 2 })]),
      leased(claim, { records: [put('a', { ifVersion: 0, payload: '3' })] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'none', 'record_changed', 'none', 'none'])
    expect(await record(scene, 'a')).toMatchObject({ version: 1, payload: '3' })
  })

  test('S7: of many writers that expect one version one writes, whether the record is there or not', async (scene) => {
    for (const ifVersion of [0, 1]) {
      const writers = Array.from({ length: 20 }, (_, writer) => only([put('a', { ifVersion, payload: `${writer}` })]))
      const answers = await Promise.all(writers.map((writer) => scene.commit(writer)))
      const written = answers.flatMap((answer, writer) => (answer.ok ? [writer] : []))
      expect(written).toHaveLength(1)
      const now = await record(scene, 'a')
      expect(now).toMatchObject({ version: ifVersion + 1, payload: `${written[0]}` })
      for (const answer of answers) if (!answer.ok) expect(answer).toMatchObject({ refusal: 'record_changed', record: now })
    }
  })

  test('writers that read, change and write again where they were refused lose nothing', async (scene) => {
    const names = Array.from({ length: 30 }, (_, index) => `n${index}`)
    await Promise.all(
      names.map(async (name) => {
        for (;;) {
          const found = await record(scene, 'list')
          const list = found === undefined ? [] : (JSON.parse(String(found.payload)) as string[])
          const payload = JSON.stringify([...list, name])
          if ((await scene.commit(only([put('list', { payload, ifVersion: found?.version ?? 0 })]))).ok) return
        }
      }),
    )
    const found = await record(scene, 'list')
    expect(found?.version).toBe(30)
    expect((JSON.parse(String(found?.payload)) as string[]).sort()).toEqual([...names].sort())
  })

  test('changes that write the same records in different orders at once are all written', async (scene) => {
    const names = Array.from({ length: 12 }, (_, index) => `k${index}`)
    const orders = Array.from({ length: 16 }, (_, start) =>
      names.map((_, index) => names[(start * 5 + index * 7) % 12] as string),
    )
    await Promise.all(orders.map(async (order) => ok(await scene.commit(only(order.map((key) => put(key)))))))
    expect((await read(scene)).map(({ version }) => version)).toEqual(names.map(() => 16))
  })
}

function testLookups(test: StoreTest): void {
  test('records are read by ranges of their keys, in both directions, with a limit', async (scene) => {
    await write(scene, ...[...hostile].reverse().map((key) => put(key)), put('elsewhere', { collection: 'other' }))
    expect(await keys(scene)).toEqual(hostile)
    expect(await keys(scene, { isDescending: true })).toEqual([...hostile].reverse())
    for (const [from, to] of [
      ['1', 'tenant/10'],
      ['%', '_'],
      ['', 'x:y'],
      ['tenant/1', '~'],
      ['\\', '\u{10ffff}'],
    ] as const) {
      const between = hostile.filter(
        (key) => Buffer.compare(Buffer.from(key), Buffer.from(from)) > 0 && Buffer.compare(Buffer.from(key), Buffer.from(to)) < 0,
      )
      expect(await keys(scene, { afterKey: from, beforeKey: to })).toEqual(between)
      expect(await keys(scene, { afterKey: from, beforeKey: to, isDescending: true, limit: 2 })).toEqual(
        [...between].reverse().slice(0, 2),
      )
    }
    expect(await keys(scene, { afterKey: 'x', limit: 1 })).toEqual(['x:y'])
    expect(await keys(scene, { beforeKey: 'tenant/10', isDescending: true, limit: 1 })).toEqual(['tenant/1'])
    expect(await keys(scene, { limit: 0 })).toEqual([])
    expect(await keys(scene, { collection: 'none' })).toEqual([])
  })

  test('records are read by their keys: each once, in order, those that exist', async (scene) => {
    await write(scene, ...hostile.map((key) => put(key)))
    const where = { keys: ['x', 'missing', '%', 'x', '_', 'tenant/10', 'tenant'] }
    expect(await keys(scene, { where })).toEqual(['%', '_', 'tenant/10', 'x'])
    expect(await keys(scene, { where, isDescending: true, limit: 2 })).toEqual(['x', 'tenant/10'])
    expect(await keys(scene, { where, afterKey: '%', beforeKey: 'x' })).toEqual(['_', 'tenant/10'])
    expect(await keys(scene, { where: { keys: [] } })).toEqual([])
  })

  test('records are read by parent and by field, which are plain text too, and follow when these change', async (scene) => {
    for (const name of hostile) await write(scene, put(`1 of ${name}`, { parent: name, fields: [{ name: 'tag', value: name }] }))
    for (const name of hostile)
      await write(
        scene,
        put(`2 of ${name}`, {
          parent: name,
          fields: [
            { name, value: 'tag' },
            { name: 'tag', value: name },
          ],
        }),
      )
    for (const name of hostile) {
      const both = [`1 of ${name}`, `2 of ${name}`]
      expect(await keys(scene, { where: { parent: name } })).toEqual(both)
      expect(await keys(scene, { where: { field: { name: 'tag', value: name } }, isDescending: true })).toEqual(
        [...both].reverse(),
      )
      expect(await keys(scene, { where: { field: { name, value: 'tag' } } })).toEqual([`2 of ${name}`])
      expect(await keys(scene, { where: { parent: name }, afterKey: `1 of ${name}`, limit: 5 })).toEqual([`2 of ${name}`])
      expect(await keys(scene, { where: { field: { name: 'tag', value: name } }, beforeKey: `2 of ${name}` })).toEqual([
        `1 of ${name}`,
      ])
    }
    await write(scene, put('1 of x', { parent: 'moved', fields: [{ name: 'tag', value: 'moved' }] }), remove('2 of x'))
    expect(await keys(scene, { where: { parent: 'x' } })).toEqual([])
    expect(await keys(scene, { where: { field: { name: 'tag', value: 'x' } } })).toEqual([])
    expect(await keys(scene, { where: { parent: 'moved' } })).toEqual(['1 of x'])
    expect(await keys(scene, { where: { field: { name: 'tag', value: 'moved' } } })).toEqual(['1 of x'])
    await write(scene, put('1 of x'))
    expect(await keys(scene, { where: { parent: 'moved' } })).toEqual([])
    expect(await keys(scene, { where: { field: { name: 'tag', value: 'moved' } } })).toEqual([])
    expect(await keys(scene, { where: { parent: '' } })).toEqual([])
  })

  test("S7: another owner's or collection's records are as good as absent", async (scene) => {
    const places = [
      ['', 'a'],
      ['a', ''],
      ['tenant/1', 'c'],
      ['tenant/10', 'c'],
      ['x', 'y:z'],
      ['x:y', 'z'],
      ['%', 'c'],
      ['_', 'c'],
      ['*', 'c'],
    ]
      .filter(([, collection]) => collection !== '')
      .map(([owner, collection]) => ({ owner: owner as string, collection: collection as string }))
    for (const [index, { owner, collection }] of places.entries()) {
      const fields = [{ name: 'tag', value: 't' }]
      ok(await scene.commit(only([put('k', { collection, parent: 'p', fields, payload: `${index}` })], owner)))
    }
    for (const [index, place] of places.entries()) {
      for (const where of [undefined, { parent: 'p' }, { field: { name: 'tag', value: 't' } }, { keys: ['k'] }] as const) {
        const found = await read(scene, { ...place, ...(where !== undefined && { where }) })
        expect(found.map(({ payload }) => payload)).toEqual([`${index}`])
      }
      expect(await keys(scene, { ...place, collection: `${place.collection}x` })).toEqual([])
    }
    const [first, ...rest] = places
    invariant(first !== undefined, 'there are places')
    ok(await scene.commit(only([remove('k', { collection: first.collection })], first.owner)))
    expect((await all(scene)).map(({ owner, collection }) => ({ owner, collection }))).toEqual(
      [...rest].sort((a, b) => compareRecords({ ...a, key: '' }, { ...b, key: '' })),
    )
  })
}

function testSearch(test: StoreTest): void {
  const fieldsOf = (words: string) => words.split(' ').map((value) => ({ name: 'word', value }))
  const search = (scene: Scene, words: string, fields: Partial<RecordSearch> = {}) =>
    scene.store.searchRecords({ owner: '', collection: 'notes', fields: fieldsOf(words), limit: 1_000, ...fields })
  const found = async (scene: Scene, words: string, fields: Partial<RecordSearch> = {}) =>
    (await search(scene, words, fields)).hits.map(({ key }) => key)

  test('a search ranks records by how much of what is asked for they have, rare fields weighing more, the same on every store', async (scene) => {
    await write(
      scene,
      put('a', { fields: fieldsOf('nuts and milk') }),
      put('b', { fields: fieldsOf('milk and tea') }),
      put('c', { fields: fieldsOf('tea and cake') }),
      put('d', { fields: [...fieldsOf('and'), { name: 'word', value: 'and' }, { name: 'other', value: 'nuts' }] }),
    )
    const [nuts, milk, and] = [1846, 1435, 1022] as const
    expect(await search(scene, 'nuts milk and none')).toEqual({
      weights: [nuts, milk, and, 2833],
      hits: [
        { key: 'a', weight: nuts + milk + and },
        { key: 'b', weight: milk + and },
        { key: 'd', weight: and },
        { key: 'c', weight: and },
      ],
    })
    expect(await found(scene, 'tea milk', { limit: 2 })).toEqual(['b', 'c'])
    expect(await found(scene, 'nuts', { having: fieldsOf('and milk') })).toEqual(['a'])
    expect(await found(scene, 'and', { having: [...fieldsOf('and'), { name: 'other', value: 'nuts' }] })).toEqual(['d'])
    expect(await found(scene, 'and', { having: fieldsOf('none') })).toEqual([])
    expect(await search(scene, 'none')).toMatchObject({ hits: [] })
    expect(await scene.store.searchRecords({ owner: '', collection: 'notes', fields: [], limit: 5 })).toEqual({
      weights: [],
      hits: [],
    })
    expect(await found(scene, 'and', { limit: 0 })).toEqual([])
    await write(scene, remove('a'), put('b', { fields: fieldsOf('nuts') }))
    expect(await found(scene, 'nuts milk')).toEqual(['b'])
  })

  test('S7: a search takes fields as plain text, and finds nothing of another owner or collection', async (scene) => {
    const odd = [...hostile, 'AND', 'NEAR(', 'a OR b', 'word:x', 'x*', "');--", '!a', 'a & b', '<->', '$1']
    const put1 = (value: string) => put(`of ${value}`, { fields: [{ name: 'word', value }] })
    await write(scene, ...odd.map(put1))
    for (const owner of ['x', '%', "'"]) ok(await scene.commit(only([put('theirs', { fields: fieldsOf('x') })], owner)))
    await write(scene, put('elsewhere', { collection: 'other', fields: fieldsOf('x') }))
    for (const value of odd) {
      const fields = [{ name: 'word', value }]
      expect((await search(scene, '', { fields })).hits.map(({ key }) => key)).toEqual([`of ${value}`])
      expect((await search(scene, '', { fields, owner: 'y' })).hits).toEqual([])
    }
    expect(await found(scene, 'x', { owner: '%' })).toEqual(['theirs'])
    expect(await found(scene, 'x', { collection: 'other' })).toEqual(['elsewhere'])
  })

  test('what has expired is not found once it is swept, and is left out by those who read what a search names', async (scene) => {
    await write(scene, put('a', { fields: fieldsOf('x'), expires: { inMs: 10_000 } }), put('b', { fields: fieldsOf('x') }))
    scene.advance(20_000)
    const named = await found(scene, 'x')
    expect(await keys(scene, { where: { keys: named } })).toEqual(['b'])
    await scene.store.sweepRecords({ limit: 10 })
    expect(await found(scene, 'x')).toEqual(['b'])
  })
}

function testExpiry(test: StoreTest): void {
  test("S9: a record that has expired by the store's clock is as good as deleted", async (scene) => {
    const fields = [{ name: 'tag', value: 't' }]
    const soon = { parent: 'p', fields, threadId: 't', expires: { inMs: 10_000 } }
    await write(
      scene,
      put('a', soon),
      put('b', { parent: 'p', fields, expires: { inMs: 30_000 } }),
      put('c', soon),
      put('d', { parent: 'p', fields }),
    )
    const now = await scene.store.now()
    await write(scene, put('e', { expires: { at: now - 1 } }), put('f', { expires: { at: now + 3_600_000 } }))
    const expiresAt = (await record(scene, 'a'))?.expiresAt ?? 0
    expect(Math.abs(expiresAt - now - 10_000)).toBeLessThan(5_000)
    expect((await record(scene, 'f'))?.expiresAt).toBe(now + 3_600_000)
    expect(await keys(scene)).toEqual(['a', 'b', 'c', 'd', 'f'])
    scene.advance(20_000)
    expect(await keys(scene)).toEqual(['b', 'd', 'f'])
    expect(await keys(scene, { limit: 2 })).toEqual(['b', 'd'])
    expect(await keys(scene, { isDescending: true, limit: 3 })).toEqual(['f', 'd', 'b'])
    expect(await keys(scene, { where: { parent: 'p' }, limit: 1 })).toEqual(['b'])
    expect(await keys(scene, { where: { field: { name: 'tag', value: 't' } } })).toEqual(['b', 'd'])
    expect(await keys(scene, { where: { keys: ['a', 'b'] } })).toEqual(['b'])
    expect((await all(scene)).map(({ key }) => key)).toEqual(['b', 'd', 'f'])
    if (scene.canReopen) {
      await scene.reopen()
      expect(await keys(scene)).toEqual(['b', 'd', 'f'])
    }
    expect(await scene.commit(only([put('a', { ifVersion: 1 })]))).toEqual({ ok: false, refusal: 'record_changed', record: null })
    await write(scene, touch('c', 60_000), remove('e', { ifVersion: 0 }), put('a', { ifVersion: 0, payload: '"new"' }))
    expect(await keys(scene)).toEqual(['a', 'b', 'd', 'f'])
    expect(await record(scene, 'a')).toMatchObject({
      version: 1,
      payload: '"new"',
      parent: null,
      threadId: null,
      fields: [],
      expiresAt: null,
    })
    expect(await keys(scene, { where: { parent: 'p' } })).toEqual(['b', 'd'])
  })

  test('a touch moves the time at which a record expires, and nothing else', async (scene) => {
    await write(scene, put('a', { payload: new Uint8Array([1, 2]), expires: { inMs: 10_000 } }), put('b'))
    const [a, b] = await read(scene)
    scene.advance(5_000)
    await write(scene, touch('a', 60_000), touch('b', 20_000), touch('missing', 1_000))
    scene.advance(10_000)
    const [later, expiring] = await read(scene)
    expect(later).toEqual({ ...a, expiresAt: later?.expiresAt })
    expect((later?.expiresAt ?? 0) - (a?.expiresAt ?? 0)).toBeGreaterThanOrEqual(50_000)
    expect({ ...expiring, expiresAt: null }).toEqual(b)
    scene.advance(11_000)
    expect(await keys(scene)).toEqual(['a'])
    ok(await scene.commit(only([{ kind: 'touch', collection: 'notes', key: 'a', expires: 'never' }])))
    scene.advance(1_000_000)
    expect(await record(scene, 'a')).toEqual({ ...a, expiresAt: null })
    expect(await scene.store.sweepRecords({ limit: 10 })).toBe(1)
    expect(await keys(scene)).toEqual(['a'])
  })

  test('what expires later than any date expires at the last one', async (scene) => {
    const last = 8_640_000_000_000_000
    const inMs = Number.MAX_VALUE
    await write(
      scene,
      put('a', { expires: { inMs } }),
      put('b', { expires: { at: inMs } }),
      put('c', { expires: { inMs: last } }),
      put('d'),
    )
    await write(scene, touch('d', inMs))
    expect((await read(scene)).map(({ expiresAt }) => expiresAt)).toEqual([last, last, last, last])
  })

  test('a touch of a version moves nothing where the record has another one', async (scene) => {
    await write(scene, put('a', { expires: { inMs: 10_000 } }), put('b'))
    await write(scene, put('b'))
    const before = await read(scene)
    const touchOf = (key: string, ofVersion: number): RecordChange => ({
      kind: 'touch',
      collection: 'notes',
      key,
      expires: { inMs: 20_000 },
      ofVersion,
    })
    await write(scene, touchOf('a', 2), touchOf('b', 1))
    expect(await read(scene)).toEqual(before)
    await write(scene, touchOf('a', 1), touchOf('missing', 0))
    expect((await record(scene, 'a'))?.expiresAt).toBeGreaterThan(before[0]?.expiresAt ?? 0)
    scene.advance(30_000)
    expect(await keys(scene)).toEqual(['b'])
  })

  test('a sweep deletes what has expired, in bounded parts, and nothing else', async (scene) => {
    const fields = [{ name: 'tag', value: 't' }]
    const names = Array.from({ length: 7 }, (_, index) => `k${index}`)
    await write(scene, ...names.map((key) => put(key, { parent: 'p', fields, threadId: 't', expires: { inMs: 10_000 } })))
    await write(
      scene,
      put('kept', { parent: 'p', fields, expires: { inMs: 100_000 } }),
      put('for ever', { parent: 'p', fields }),
      touch('k3', 50_000),
    )
    expect(await scene.store.sweepRecords({ limit: 100 })).toBe(0)
    scene.advance(20_000)
    await write(scene, put('k0', { parent: 'p', fields }), remove('k1'), touch('k2', 50_000))
    expect(await scene.store.sweepRecords({ limit: 0 })).toBe(0)
    expect(await scene.store.sweepRecords({ limit: 3 })).toBe(3)
    expect(await scene.store.sweepRecords({ limit: 3 })).toBe(2)
    expect(await scene.store.sweepRecords({ limit: 3 })).toBe(0)
    for (const where of [undefined, { parent: 'p' }, { field: { name: 'tag', value: 't' } }] as const)
      expect(await keys(scene, where === undefined ? {} : { where })).toEqual(['for ever', 'k0', 'k3', 'kept'])
    expect((await record(scene, 'k0'))?.version).toBe(1)
  })
}

function testWhole(test: StoreTest): void {
  test('the records of a thread are deleted with it, those of others stay', async (scene) => {
    await scene.create({ id: 'r', threadId: 't' })
    const fields = [{ name: 'tag', value: 't' }]
    await write(
      scene,
      put('a', { threadId: 't', parent: 'p', fields }),
      put('b', { threadId: 't', expires: { inMs: 1 } }),
      put('c', { threadId: 't/1', parent: 'p', fields }),
      put('d'),
    )
    await write(
      scene,
      put('e', { threadId: 'other' }),
      put('e', { threadId: 't' }),
      put('f', { threadId: 't' }),
      put('f', { threadId: 'other' }),
    )
    ok(await scene.commit(only([put('a', { threadId: 't' })], 'ann')))
    scene.advance(10)
    expect(await scene.store.deleteThread({ owner: '', threadId: 't', at: 1 })).toBe(true)
    expect(await keys(scene)).toEqual(['c', 'd', 'f'])
    expect(await keys(scene, { where: { parent: 'p' } })).toEqual(['c'])
    expect(await keys(scene, { where: { field: { name: 'tag', value: 't' } } })).toEqual(['c'])
    expect(await keys(scene, { owner: 'ann' })).toEqual(['a'])
    expect(await scene.store.sweepRecords({ limit: 10 })).toBe(0)
    await scene.create({ id: 'r', threadId: 't' })
    await write(scene, put('b', { threadId: 't', ifVersion: 0 }))
    expect((await all(scene, 3, { owner: '', threadId: 't' })).map(({ key }) => key)).toEqual(['b'])
  })

  test('the records of a thread move with it, with their versions and times', async (scene) => {
    await scene.create({ id: 'r', threadId: 't' })
    const fields = [{ name: 'tag', value: 't' }]
    await write(
      scene,
      put('a', { threadId: 't' }),
      put('b', { threadId: 't', expires: { inMs: 1_000 } }),
      put('elsewhere', { threadId: 'u' }),
    )
    await write(
      scene,
      put('a', { threadId: 't', parent: 'p', fields, payload: new Uint8Array([0, 7]), expires: { inMs: 60_000 } }),
    )
    await write(scene, put('z', { threadId: 't', collection: 'first' }))
    scene.advance(2_000)
    const whole = await readWholeThread(scene.store, { owner: '', threadId: 't' })
    invariant(whole !== null, 'the thread is there')
    expect(whole.records.map(({ collection, key, version }) => [collection, key, version])).toEqual([
      ['first', 'z', 1],
      ['notes', 'a', 2],
    ])
    expect(await readWholeThread(scene.store, { owner: '', threadId: 'u' })).toBeNull()
    const theirs = {
      ...whole,
      thread: { ...whole.thread, owner: 'ann' },
      runs: whole.runs.map((one) => ({ ...one, run: { ...one.run, owner: 'ann' } })),
      records: whole.records.map((one) => ({ ...one, owner: 'ann' })),
    }
    ok(await scene.commit(only([put('a'), put('z', { collection: 'first', expires: { inMs: 10 } })], 'ann')))
    expect(await scene.store.restoreThread(theirs)).toEqual({ ok: false, refusal: 'conflict' })
    expect(await scene.store.readThread({ owner: 'ann', threadId: 't' })).toBeNull()
    ok(await scene.commit(only([remove('a')], 'ann')))
    scene.advance(20)
    expect(await scene.store.restoreThread(theirs)).toEqual({ ok: true })
    for (const limit of [1, 2, 3]) expect(await all(scene, limit, { owner: 'ann', threadId: 't' })).toEqual(theirs.records)
    expect(await all(scene, 1, { owner: 'ann', threadId: 'u' })).toEqual([])
    expect(await keys(scene, { owner: 'ann', where: { parent: 'p' } })).toEqual(['a'])
    expect(await keys(scene, { owner: 'ann', where: { field: { name: 'tag', value: 't' } } })).toEqual(['a'])
    scene.advance(60_000)
    expect(await keys(scene, { owner: 'ann' })).toEqual([])
  })

  test('a record is restored as it was elsewhere; where there is one it stays as it is', async (scene) => {
    const now = await scene.store.now()
    const given: Omit<KeyedRecord, 'owner'> = {
      ...{ collection: 'notes', key: 'a', parent: 'p', threadId: null, fields: [{ name: 'tag', value: 't' }], version: 7 },
      ...{ payload: new Uint8Array([9]), createdAt: 1_000, updatedAt: 2_000, expiresAt: now + 60_000 },
    }
    await write(scene, { kind: 'restore', record: given }, put('b'))
    expect(await record(scene, 'a')).toEqual({ owner: '', ...given })
    expect(await keys(scene, { where: { parent: 'p' } })).toEqual(['a'])
    const b = await record(scene, 'b')
    await write(scene, { kind: 'restore', record: { ...given, key: 'b' } }, { kind: 'restore', record: { ...given, version: 9 } })
    expect(await read(scene)).toEqual([{ owner: '', ...given }, b])
    await write(scene, put('a', { ifVersion: 7, expires: { inMs: 1 } }))
    scene.advance(10)
    await write(scene, { kind: 'restore', record: { ...given, expiresAt: null } })
    expect(await record(scene, 'a')).toEqual({ owner: '', ...given, expiresAt: null })
  })

  test('a scan shows the records of all owners, page by page', async (scene) => {
    const places = ['', 'ann', 'x:y'].flatMap((owner) =>
      ['a', 'b'].flatMap((collection) => ['1', '10', '%'].map((key) => ({ owner, collection, key }))),
    )
    for (const { owner, collection, key } of places)
      ok(await scene.commit(only([put(key, { collection, payload: `"${owner} ${collection} ${key}"` })], owner)))
    ok(await scene.commit(only([put('gone', { expires: { at: 1 } })], 'bob')))
    for (const limit of [1, 4, 18, 100]) {
      const found = await all(scene, limit)
      expect(found.map(({ payload }) => payload)).toEqual(
        [...places].sort(compareRecords).map(({ owner, collection, key }) => `"${owner} ${collection} ${key}"`),
      )
    }
    await expect(scene.store.scanRecords({ limit: 1, cursor: 'no cursor' })).rejects.toMatchObject({ code: 'invalid_input' })
  })
}
