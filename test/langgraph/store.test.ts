import { HoldfastStore } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'

onEveryStore("LangGraph's long-term store", ({ open, advance }) => {
  it('keeps values exactly, by namespace and key, and forgets what is deleted', async () => {
    const store = new HoldfastStore(await open({ worker: false }))
    const value = { at: new Date(5), n: 10n, tags: new Set(['a']), lc: 1, type: 'constructor', id: ['x'] }
    await store.put(['users', 'ann'], 'profile', value)
    const item = await store.get(['users', 'ann'], 'profile')
    expect(item?.value).toEqual(value)
    expect(item).toMatchObject({ namespace: ['users', 'ann'], key: 'profile' })
    expect(item?.createdAt).toBeInstanceOf(Date)
    await store.put(['users', 'ann'], 'profile', { n: 2 })
    expect((await store.get(['users', 'ann'], 'profile'))?.value).toEqual({ n: 2 })
    await store.delete(['users', 'ann'], 'profile')
    expect(await store.get(['users', 'ann'], 'profile')).toBeNull()
  })

  it('finds a namespace and what is below it, and never one that merely begins like it', async () => {
    const store = new HoldfastStore(await open({ worker: false }))
    for (const namespace of [
      ['tenant', '1'],
      ['tenant', '10'],
      ['tenant', '1', 'deep'],
      ['tenant', '%'],
      ['tenan', 't1'],
    ]) {
      await store.put(namespace, 'k', { namespace })
    }
    const found = async (prefix: string[]) => (await store.search(prefix)).map(({ namespace }) => namespace.join('/'))
    expect((await found(['tenant', '1'])).sort()).toEqual(['tenant/1', 'tenant/1/deep'])
    expect(await found(['tenant', '%'])).toEqual(['tenant/%'])
    expect((await found(['tenant'])).length).toBe(4)
    expect((await found([])).length).toBe(5)
    expect(await found(['ten'])).toEqual([])
  })

  it('filters, pages and lists namespaces', async () => {
    const store = new HoldfastStore(await open({ worker: false }))
    for (let n = 0; n < 15; n++)
      await store.put(['docs', n % 2 === 0 ? 'even' : 'odd'], `k${n}`, { n, kind: n % 3, nested: { n } })
    const count = async (filter: object, options: object = {}) =>
      (await store.search(['docs'], { filter, limit: 100, ...options })).length
    expect([await count({ kind: 0 }), await count({ n: { $gte: 10 } }), await count({ n: { $gt: 3, $lt: 6 } })]).toEqual([
      5, 5, 2,
    ])
    expect([await count({ nested: { n: 4 } }), await count({ n: { $ne: 1 } }), await count({ "n' OR 1=1": 1 })]).toEqual([
      1, 14, 0,
    ])
    expect((await store.search(['docs'])).length).toBe(10)
    expect((await store.search(['docs'], { limit: 10, offset: 10 })).length).toBe(5)
    expect(await codeOfRejection(store.search(['docs'], { filter: { n: { $regex: 'x' } } }))).toBe('invalid_input')
    expect(await codeOfRejection(store.search(['docs'], { query: 'anything' }))).toBe('invalid_input')
    expect((await store.listNamespaces({ prefix: ['docs'] })).sort()).toEqual([
      ['docs', 'even'],
      ['docs', 'odd'],
    ])
    expect(await store.listNamespaces({ suffix: ['*', 'odd'] })).toEqual([['docs', 'odd']])
    expect(await store.listNamespaces({ maxDepth: 1 })).toEqual([['docs']])
  })

  it('forgets an item when its time is over, counted from its last use', async () => {
    const store = new HoldfastStore(await open({ worker: false }), { ttlMs: 10_000 })
    await store.put(['a'], 'k', { n: 1 })
    advance(8_000)
    expect((await store.search(['a'])).length).toBe(1)
    advance(8_000)
    expect(await store.get(['a'], 'k')).not.toBeNull()
    advance(11_000)
    expect(await store.get(['a'], 'k')).toBeNull()
    expect(await store.search(['a'])).toEqual([])
  })
})
