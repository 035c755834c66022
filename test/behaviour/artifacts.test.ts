import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { type Artifact, type ArtifactType, type Holdfast, workflow } from 'holdfast'
import { type StoreHooks, wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { artifactParts } from '../../src/artifacts/artifacts-parts.ts'
import { collectArtifacts } from '../../src/artifacts/collect-artifacts.ts'
import { createCodec } from '../../src/model/codec.ts'
import type { Change, Committed } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { startProgramMounted } from './programs.ts'
import { codeOfRejection, gate } from './runs.ts'
import { onEveryStore, onLocalStores, onSqlite } from './stores.ts'

const dayMs = 86_400_000
const sha256 = (content: string | Uint8Array) => createHash('sha256').update(content).digest('hex')
const text = async (hf: Holdfast, id: string) => (await hf.artifacts.open(id)).text()

async function* streamOf(...chunks: readonly (string | Uint8Array)[]) {
  yield* chunks
}

onEveryStore('artifacts', ({ open, openMortal, openWrapped, advance }) => {
  it('are saved from text, bytes and streams, from a step, from ctx and from outside, and come back byte for byte', async () => {
    const bytes = new Uint8Array([0, 255, 10, 13, 0])
    const work = workflow('work', async (ctx) => {
      const first = await ctx.artifacts.save({ name: 'a.txt', type: 'generated_file', content: 'hällo' })
      const more = await ctx.step('more', async ({ artifacts }) => {
        const second = await artifacts.save({ name: 'b.bin', type: 'data_export', content: bytes })
        const third = await artifacts.save({ name: 'c/d.txt', type: 'analysis_result', content: Readable.from(['one ', 'two']) })
        const fourth = await artifacts.save({ name: 'e', type: 'message_content', content: () => streamOf('x', bytes) })
        expect(await (await artifacts.open(fourth.id)).bytes()).toEqual(new Uint8Array([120, ...bytes]))
        expect((await artifacts.get({ name: 'c/d.txt' }))?.id).toBe(third.id)
        expect((await artifacts.list()).items.map(({ name }) => name)).toEqual(['a.txt', 'b.bin', 'c/d.txt', 'e'])
        return [second, third, fourth]
      })
      const read = await (await ctx.artifacts.open({ name: 'c/d.txt' })).text()
      return { saved: [first, ...more], read, listed: (await ctx.artifacts.list()).items.length }
    })
    const hf = await open({ workflows: [work] })
    const { saved, read, listed } = await hf.run(work, undefined, { id: 't' })
    expect([read, listed]).toEqual(['one two', 4])
    const contents = ['hällo', bytes, 'one two', new Uint8Array([120, ...bytes])]
    const types: ArtifactType[] = ['generated_file', 'data_export', 'analysis_result', 'message_content']
    for (const [index, artifact] of saved.entries()) {
      const content = contents[index] as string | Uint8Array
      expect(artifact).toMatchObject({ type: types[index], version: 1, threadId: 't', sha256: sha256(content) })
      expect(artifact.size).toBe(Buffer.byteLength(content))
      expect(artifact.createdBy.runId).toBe('t')
      const principal = { role: 'thread', threadId: 't' } as const
      expect(Buffer.from(await (await hf.artifacts.open(artifact.id, { principal })).bytes())).toEqual(Buffer.from(content))
    }
    expect(saved.map(({ contentType }) => contentType)).toEqual([
      'text/plain; charset=utf-8',
      ...Array.from({ length: 3 }, () => 'application/octet-stream'),
    ])
    const large = Buffer.alloc(900_000, 'holdfast ')
    const outside = await hf.artifacts.save({ name: 'a.txt', type: 'analysis_result', content: large, by: 'ann' })
    expect(outside).toMatchObject({ version: 1, createdBy: { by: 'ann' }, size: 900_000 })
    expect(outside.threadId).toBeUndefined()
    expect(Buffer.from(await (await hf.artifacts.open(outside.id)).bytes()).equals(large)).toBe(true)
    const empty = await hf.artifacts.save({ name: 'empty', type: 'generated_file', content: '' })
    expect(await text(hf, empty.id)).toBe('')
    expect(await hf.as('bob').artifacts.get(outside.id)).toBeUndefined()
    expect(await codeOfRejection(hf.as('bob').artifacts.open(outside.id))).toBe('artifact_not_found')
  })

  it('are there with the result of the step that saved them, in one write, and not at all when it fails', async () => {
    const commits: Change[] = []
    const work = workflow('work', (ctx) =>
      ctx.step(
        'try',
        async ({ artifacts, attempt, memory }) => {
          const saved = await artifacts.save({ name: 'n', type: 'analysis_result', content: `attempt ${attempt}` })
          await memory.of('alice').profile.merge({ attempt })
          if (attempt < 3) throw new Error('not yet')
          return saved
        },
        { retry: { minMs: 1, jitter: false } },
      ),
    )
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, { before: (act, _, [changes]) => void (act === 'commit' && commits.push(...(changes as Change[]))) }),
      { workflows: [work] },
    )
    const saved = await hf.run(work, undefined, { id: 't' })
    const { items } = await hf.artifacts.list({ threadId: 't' })
    expect(items).toEqual([saved])
    expect([saved.version, await text(hf, saved.id)]).toEqual([1, 'attempt 3'])
    const [written, ...more] = commits.filter(({ runId, records }) => runId !== null && records !== undefined)
    expect(more).toEqual([])
    const types = written?.events.map(({ type }) => type).filter((type) => type !== 'step_started')
    expect(types).toEqual(['memory_written', 'artifact_saved', 'step_completed'])
    const logged = (await (await hf.runs.get('t')).events()).filter(({ type }) => type === 'artifact_saved')
    expect(logged.map(({ step, data }) => [step, data?.['id'], data?.['sha256']])).toEqual([['try', saved.id, saved.sha256]])
  })

  it('survive the death of their worker, and what a dead attempt saved is not there', async () => {
    const { promise, open: letGo } = gate()
    let isFirst = true
    const work = workflow('work', async (ctx) => {
      const kept = await ctx.artifacts.save({ name: 'kept', type: 'generated_file', content: 'kept' })
      const read = await (await ctx.artifacts.open(kept.id)).text()
      await ctx.step('die', async ({ artifacts }) => {
        await artifacts.save({ name: 'lost', type: 'generated_file', content: 'lost' })
        if (isFirst) {
          isFirst = false
          letGo()
          await new Promise(() => {})
        }
      })
      const names = (await ctx.artifacts.list()).items.map(({ name, version }) => [name, version])
      return { read, names }
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 't' })
    await promise
    await die()
    const next = await open({ workflows: [work] })
    expect((await next.artifacts.list({ threadId: 't' })).items.map(({ name }) => name)).toEqual(['kept'])
    advance(11_000)
    expect(await (await next.runs.get('t')).result()).toEqual({
      read: 'kept',
      names: [
        ['kept', 1],
        ['lost', 1],
      ],
    })
  })

  it('have versions: 50 savers of one name make 50, and none is lost', async () => {
    const hf = await open()
    const others = await open({ worker: false })
    const saves = Array.from({ length: 50 }, (_, index) =>
      (index % 2 === 0 ? hf : others).artifacts.save({ name: 'n', type: 'analysis_result', content: `${index % 5}` }),
    )
    const saved = await Promise.all(saves)
    expect(saved.map(({ version }) => version).sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1))
    const { items } = await hf.artifacts.list({ name: 'n', threadId: null })
    expect(new Set(items.map(({ version }) => version)).size).toBe(50)
    expect(await hf.artifacts.get({ name: 'n' })).toMatchObject({ version: 50 })
    for (const [index, { id, version }] of saved.entries()) {
      expect(await text(hf, id)).toBe(`${index % 5}`)
      expect((await hf.artifacts.get({ name: 'n', version }))?.id).toBe(id)
    }
  })

  it('have versions: 50 steps of one run that save one name at the same time make 50', async () => {
    const work = workflow('work', async (ctx) => {
      const items = Array.from({ length: 50 }, (_, index) => index)
      await ctx.map('save', items, (item, _, { artifacts }) =>
        artifacts.save({ name: 'n', type: 'analysis_result', content: item < 25 ? 'same' : `${item}` }),
      )
    })
    const hf = await open({ workflows: [work] })
    await hf.run(work, undefined, { id: 't' })
    const { items } = await hf.artifacts.list({ threadId: 't', name: 'n' })
    expect(items.map(({ version }) => version).sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1))
  })

  it('are read by those whom their type names, and by nobody else', async () => {
    const hf = (await open()).as('alice')
    const owner = undefined
    const auditor = { role: 'auditor', id: 'ann' } as const
    const system = { role: 'system' } as const
    const thread = { role: 'thread', threadId: 't' } as const
    const other = { role: 'thread', threadId: 'u' } as const
    const readers = { owner, alice: 'alice', bob: 'bob', auditor, system, thread, other }
    const may: Readonly<Record<ArtifactType, string>> = {
      generated_file: 'owner alice thread other',
      data_export: 'owner alice auditor thread other',
      analysis_result: 'owner alice system thread other',
      message_content: 'thread',
    }
    for (const [type, names] of Object.entries(may) as [ArtifactType, string][]) {
      const { id } = await hf.artifacts.save({ name: type, type, content: type, threadId: 't' })
      const open: string[] = []
      for (const [name, principal] of Object.entries(readers)) {
        const options = principal === undefined ? {} : { principal }
        const ways = [hf.artifacts.get(id, options), hf.artifacts.open(id, options), hf.artifacts.download(id, options)]
        const codes = await Promise.all(
          ways.map(
            async (way) =>
              (await way.then(
                () => 'ok',
                () => null,
              )) ?? codeOfRejection(way),
          ),
        )
        expect(new Set(codes).size, `${type} ${name}`).toBe(1)
        if (codes[0] === 'ok') open.push(name)
        else expect(codes[0]).toBe('access_denied')
        const { items } = await hf.artifacts.list({ ...options, type })
        expect(items.length, `${type} listed for ${name}`).toBe(codes[0] === 'ok' ? 1 : 0)
      }
      expect(open.join(' ')).toBe(names)
      for (const principal of [auditor, system, other])
        if (type === 'message_content' || principal !== other)
          expect(await codeOfRejection(hf.artifacts.delete(id, { principal }))).toBe('access_denied')
      expect([await hf.artifacts.delete(id), await hf.artifacts.delete(id)]).toEqual([true, false])
    }
  })

  it('of a run are read in the context of its thread: what is said in a thread stays there', async () => {
    const work = workflow<{ id?: string }, string>('work', async (ctx, { id }) => {
      if (id !== undefined) return (await ctx.artifacts.open(id)).text()
      return (await ctx.artifacts.save({ name: 'said', type: 'message_content', content: 'a secret' })).id
    })
    const hf = await open({ workflows: [work] })
    const id = await hf.thread('t').run(work, {})
    expect(await hf.thread('t').run(work, { id })).toBe('a secret')
    const other = await hf.thread('u').start(work, { id })
    expect(await codeOfRejection(other.result())).toBe('run_failed')
    expect((await other.info()).error?.message).toContain('may not read')
    expect(await codeOfRejection(hf.artifacts.open(id))).toBe('access_denied')
  })

  it('log each read of an export, also in the log of its thread', async () => {
    const work = workflow('work', async (ctx) => {
      const { id } = await ctx.artifacts.save({ name: 'e', type: 'data_export', content: 'all' })
      await ctx.step('read', async ({ artifacts }) => (await artifacts.open(id)).text())
      return id
    })
    const hf = await open({ workflows: [work] })
    const id = await hf.run(work, undefined, { id: 't' })
    await hf.artifacts.open(id)
    await (await hf.artifacts.download(id, { principal: { role: 'auditor', id: 'ann' } })).bytes()
    expect(await codeOfRejection(hf.artifacts.open(id, { principal: 'bob' }))).toBe('access_denied')
    const reads = await hf.artifacts.reads(id)
    expect(reads.map(({ role, principal, step }) => [role, principal, step])).toEqual([
      ['thread', 't', 'read'],
      ['owner', undefined, undefined],
      ['auditor', 'ann', undefined],
    ])
    const file = await hf.artifacts.save({ name: 'f', type: 'generated_file', content: 'f' })
    await (await hf.artifacts.open(file.id)).bytes()
    expect(await hf.artifacts.reads(file.id)).toEqual([])
  })

  it('know when they were read last; a file is kept a day after it was downloaded to its end, an export 30 days', async () => {
    const hf = await open()
    const save = (type: ArtifactType, retention = {}) =>
      hf.artifacts.save({ name: type, type, content: type, threadId: 't', retention })
    const [file, data, result] = [await save('generated_file'), await save('data_export'), await save('analysis_result')]
    const brief = await save('analysis_result', { ttlMs: 60_000 })
    const isThere = async ({ id }: Artifact) => (await hf.artifacts.get(id)) !== undefined
    expect(file.accessedAt).toBeUndefined()
    advance(60_001)
    expect(await isThere(brief)).toBe(false)
    advance(28 * dayMs)
    expect(await Promise.all([file, data, result].map(isThere))).toEqual([true, true, true])
    await (await hf.artifacts.open(file.id)).bytes()
    const seen = (await hf.artifacts.get(file.id)) as Artifact
    expect(seen.accessedAt).toBeGreaterThan(file.createdAt + 28 * dayMs)
    expect(seen.downloadedAt).toBeUndefined()
    const broken = await hf.artifacts.download(file.id)
    broken.destroy()
    expect((await hf.artifacts.get(file.id))?.downloadedAt).toBeUndefined()
    expect(await (await hf.artifacts.download(file.id)).text()).toBe('generated_file')
    const { downloadedAt = 0, expiresAt } = (await hf.artifacts.get(file.id)) as Artifact
    expect(expiresAt).toBe(downloadedAt + dayMs)
    advance(dayMs - 60_000)
    expect(await Promise.all([file, data, result].map(isThere))).toEqual([true, true, true])
    advance(61_000)
    expect(await Promise.all([file, data, result].map(isThere))).toEqual([false, true, true])
    advance(dayMs)
    expect(await Promise.all([file, data, result].map(isThere))).toEqual([false, false, true])
    expect(await codeOfRejection(hf.artifacts.open(file.id))).toBe('artifact_not_found')
  })

  it('are listed page by page, by thread, name and type', async () => {
    const hf = await open()
    for (const threadId of ['t', 'u', null])
      for (const name of ['a', 'a', 'b']) await hf.artifacts.save({ name, type: 'analysis_result', content: name, threadId })
    await hf.artifacts.save({ name: 'a', type: 'generated_file', content: 'f', threadId: 't' })
    const all: string[] = []
    for (let cursor: string | undefined; ; ) {
      const page = await hf.artifacts.list({ limit: 3, cursor })
      all.push(...page.items.map(({ threadId, name, version }) => `${threadId} ${name}${version}`))
      cursor = page.cursor
      if (cursor === undefined) break
    }
    expect(all).toEqual(['t a1', 't a2', 't b1', 'u a1', 'u a2', 'u b1', 'undefined a1', 'undefined a2', 'undefined b1', 't a3'])
    const names = async (filter: object) =>
      (await hf.artifacts.list(filter)).items.map(({ name, version }) => `${name}${version}`)
    expect(await names({ threadId: 't' })).toEqual(['a1', 'a2', 'b1', 'a3'])
    expect(await names({ threadId: null })).toEqual(['a1', 'a2', 'b1'])
    expect(await names({ threadId: 't', name: 'a' })).toEqual(['a1', 'a2', 'a3'])
    expect(await names({ name: 'b' })).toEqual(['b1', 'b1', 'b1'])
    expect(await names({ type: 'generated_file' })).toEqual(['a3'])
  })

  it('that a step deletes are gone with its result; the version of a deleted one is not given again', async () => {
    const work = workflow<string, unknown>('work', async (ctx, id) => {
      await ctx.step(
        'fails',
        async ({ artifacts, attempt }) => {
          const isDeleted = await artifacts.delete(id)
          expect(await artifacts.get(id)).toBeUndefined()
          if (attempt === 1) throw new Error('not yet')
          return isDeleted
        },
        { retry: { minMs: 1 } },
      )
      return (await ctx.artifacts.save({ name: 'n', type: 'analysis_result', content: '2' })).version
    })
    const hf = await open({ workflows: [work] })
    const { id } = await hf.artifacts.save({ name: 'n', type: 'analysis_result', content: '1', threadId: 't' })
    expect(await hf.run(work, id, { id: 't' })).toBe(2)
    expect((await hf.artifacts.list({ threadId: 't' })).items.map(({ version }) => version)).toEqual([2])
    const types = (await (await hf.runs.get('t')).events()).map(({ type }) => type)
    expect(types.filter((type) => type === 'artifact_deleted')).toHaveLength(1)
  })

  it('are deleted with their thread; those of no thread stay', async () => {
    const work = workflow('work', async (ctx) => {
      const shared = await ctx.artifacts.save({ name: 's', type: 'analysis_result', content: 's', threadId: null })
      const own = await ctx.artifacts.save({ name: 'o', type: 'analysis_result', content: 'o' })
      return [shared.id, own.id]
    })
    const hf = await open({ workflows: [work] })
    const [shared = '', own = ''] = await hf.run(work, undefined, { id: 't' })
    await hf.thread('t').delete()
    expect(await hf.artifacts.get(own)).toBeUndefined()
    expect(await text(hf, shared)).toBe('s')
  })

  it('with a stream that fails in the middle leave nothing, and another attempt opens the stream again', async () => {
    let opened = 0
    const failing = () => {
      const isFirst = ++opened === 1
      return (async function* () {
        yield 'half'
        if (isFirst) throw new Error('the network is gone')
        yield ' and half'
      })()
    }
    const work = workflow('work', (ctx) =>
      ctx.step('save', ({ artifacts }) => artifacts.save({ name: 'n', type: 'generated_file', content: failing }), {
        retry: { minMs: 1 },
      }),
    )
    const once = workflow('once', (ctx) => ctx.artifacts.save({ name: 'm', type: 'generated_file', content: failing() }))
    const hf = await open({ workflows: [work, once] })
    const { id, version } = await hf.run(work, undefined, { id: 't' })
    expect([version, await text(hf, id)]).toEqual([1, 'half and half'])
    opened = 0
    expect(await codeOfRejection(hf.artifacts.save({ name: 'x', type: 'analysis_result', content: failing }))).toBe(
      'stream_failed',
    )
    expect((await hf.artifacts.list({ threadId: null })).items).toEqual([])
    opened = 0
    const stream = failing()
    expect(await codeOfRejection(hf.artifacts.save({ name: 'x', type: 'analysis_result', content: stream }))).toBe(
      'stream_failed',
    )
    // What is left of a stream that was read is not its content.
    expect(await codeOfRejection(hf.artifacts.save({ name: 'x', type: 'analysis_result', content: stream }))).toBe(
      'invalid_input',
    )
  })

  it('refuse bad input with a code, before anything is written', async () => {
    const hf = await open()
    const good = { name: 'n', type: 'generated_file', content: 'c' } as const
    const codes = async (given: readonly object[]) => [
      ...new Set(await Promise.all(given.map((bad) => codeOfRejection(hf.artifacts.save({ ...good, ...bad } as never))))),
    ]
    const names = [
      '',
      '../a',
      'a/../b',
      '/etc/passwd',
      'a//b',
      'a/',
      '.',
      '..',
      '...',
      'a\\b',
      'C:x',
      'a\0b',
      'a\nb',
      'nul',
      'CON.txt',
      'x/aux',
      'a.',
      'a ',
      ' a',
      'a\u202Efdp.exe',
      '\ud800',
      'x'.repeat(513),
      3,
      null,
      undefined,
    ]
    expect(await codes(names.map((name) => ({ name })))).toEqual(['invalid_id'])
    const bad = [
      ...[{ type: 'file' }, { type: undefined }, { type: '__proto__' }, { content: 3 }, { content: undefined }, { content: {} }],
      ...[{ content: null }, { content: () => 3 }, { contentType: 'pdf' }, { contentType: 'a/b\r\nX: y' }, { contentType: 3 }],
      ...[{ retention: { ttlMs: 0 } }, { retention: { ttlMs: 'x' } }, { retention: { days: 3 } }, { retention: 3 }, { typ: 'x' }],
      ...[{ content: () => streamOf(3 as never) }, { type: 'message_content' }],
    ]
    expect(await codes(bad)).toEqual(['invalid_input'])
    expect(await codes([{ content: 'a\ud800' }, { content: () => streamOf('\udc00') }])).toEqual(['value_not_storable'])
    expect(await codes([{ threadId: '' }, { threadId: 3 }, { by: '' }])).toEqual(['invalid_id'])
    expect(await codeOfRejection(hf.artifacts.save(null as never))).toBe('invalid_input')
    expect((await hf.artifacts.list()).items).toEqual([])
    const { id } = await hf.artifacts.save(good)
    for (const principal of [3, null, {}, { role: 'root' }, [], { role: 'toString' }])
      expect(await codeOfRejection(hf.artifacts.open(id, { principal: principal as never }))).toBe('invalid_input')
    for (const principal of [{ role: 'auditor' }, { role: 'thread' }, ''])
      expect(['invalid_id', 'ok']).toContain(
        await hf.artifacts.get(id, { principal: principal as never }).then(
          () => 'ok',
          (error) => error.code,
        ),
      )
    expect(await codeOfRejection(hf.artifacts.get(3 as never))).toBe('invalid_id')
    expect(await codeOfRejection(hf.artifacts.get({ name: 'n', version: 0 }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.artifacts.get({ nam: 'n' } as never))).toBe('invalid_input')
    for (const filter of [{ limit: 0 }, { limit: 1_001 }, { type: 'x' }, { kind: 'x' }])
      expect(await codeOfRejection(hf.artifacts.list(filter as never))).toBe('invalid_input')
    expect(
      await codeOfRejection(hf.artifacts.save({ ...good, type: 'analysis_result', content: new Uint8Array(65 * 1024 * 1024) })),
    ).toBe('value_too_large')
  })

  it('that a body saves after its end are refused', async () => {
    let late: Promise<unknown> | undefined
    const { promise, open: letGo } = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('leaves', ({ artifacts }) => {
        late = promise.then(() => artifacts.save({ name: 'late', type: 'generated_file', content: 'x' }))
        late.catch(() => {})
      })
    })
    const hf = await open({ workflows: [work] })
    await hf.run(work, undefined, { id: 't' })
    letGo()
    expect(await codeOfRejection(late as Promise<unknown>)).toBe('closed')
    expect((await hf.artifacts.list()).items).toEqual([])
  })
})

onEveryStore('collecting the content of artifacts', ({ open, openWrapped, advance }) => {
  const openBoth = async (hooks: StoreHooks = {}) => {
    const opened: Store[] = []
    const hf = await openWrapped((store) => {
      opened.push(store)
      return store
    })
    const store = wrapStore(opened[0] as Store, hooks)
    const commit = async (change: Change) => (await store.commit([change]))[0] as Committed
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const parts = artifactParts({ store, codec: createCodec(), log, commit }, { kind: 'store' })
    return { hf, collect: (options = {}) => collectArtifacts(parts, options) }
  }

  it('looks again before it removes: what was saved since keeps its bytes', async () => {
    const save = (client: Holdfast) => client.artifacts.save({ name: 'n', type: 'analysis_result', content: 'equal' })
    let between: (() => Promise<unknown>) | undefined
    const { hf, collect } = await openBoth({
      after: async (act, _, [query]) => {
        const { collection, where } = (query ?? {}) as { collection?: string; where?: { field?: { name: string } } }
        const isLook = act === 'readRecords' && collection === 'artifact' && where?.field?.name === 'content'
        const next = isLook ? between : undefined
        if (isLook) between = undefined
        await next?.()
      },
    })
    await hf.artifacts.delete((await save(hf)).id)
    let saved: Artifact | undefined
    between = async () => {
      saved = await save(hf)
    }
    expect(await collect({ graceMs: 0 })).toMatchObject({ contents: 0 })
    expect(await text(hf, (saved as unknown as Artifact).id)).toBe('equal')
    await hf.artifacts.delete((saved as unknown as Artifact).id)
    expect(await collect({ graceMs: 0 })).toMatchObject({ contents: 1 })
  })

  it('removes what nothing refers to, a day after it was used last, and nothing else', async () => {
    const { hf, collect } = await openBoth()
    const save = (content: string, more = {}) => hf.artifacts.save({ name: 'n', type: 'analysis_result', content, ...more })
    const kept = await save('kept')
    const twice = await save('twice')
    const again = await save('twice', { name: 'm' })
    const gone = await save('gone')
    await save('expires', { retention: { ttlMs: 60_000 } })
    await hf
      .as('bob')
      .artifacts.delete((await hf.as('bob').artifacts.save({ name: 'n', type: 'data_export', content: 'of bob' })).id)
    await hf.artifacts.delete(twice.id)
    await hf.artifacts.delete(gone.id)
    expect(await collect()).toMatchObject({ seen: 5, contents: 0 })
    advance(dayMs - 1_000)
    const renewed = await save('gone', { name: 'again' })
    await hf.artifacts.delete(renewed.id)
    advance(2_000)
    expect(await collect({ dryRun: true })).toMatchObject({ contents: 2, bytes: 13 })
    expect(await collect()).toMatchObject({ seen: 5, contents: 2, bytes: 13, leftovers: 0 })
    expect(await collect()).toMatchObject({ seen: 3, contents: 0 })
    expect([await text(hf, kept.id), await text(hf, again.id)]).toEqual(['kept', 'twice'])
    advance(dayMs)
    expect(await collect()).toMatchObject({ seen: 3, contents: 1 })
    expect(await text(hf, (await save('gone')).id)).toBe('gone')
  })

  it('beside saves of equal content and deletions, leaves every artifact its bytes', async () => {
    const { hf, collect } = await openBoth()
    const others = await open({ worker: false, artifacts: 'store:' })
    let isOver = false
    const save = async (client: Holdfast, index: number) => {
      for (let round = 0; round < 8; round++) {
        const saved = await client.artifacts
          .save({ name: `n${index}`, type: 'analysis_result', content: `content ${round % 2}` })
          .catch((error: { code?: string }) => {
            // Without any grace a collector may be faster than the commit.
            expect(error.code).toBe('conflict')
          })
        if (saved === undefined) continue
        expect(await text(client, saved.id)).toBe(`content ${round % 2}`)
        if (round % 3 !== 0) await client.artifacts.delete(saved.id)
      }
    }
    const collecting = (async () => {
      for (let graceMs = 0; !isOver; graceMs = (graceMs + 7) % 29) {
        await collect({ graceMs })
        await setImmediate()
      }
    })()
    await Promise.all(Array.from({ length: 4 }, (_, index) => save(index % 2 === 0 ? hf : others, index)))
    isOver = true
    await collecting
    const { items } = await hf.artifacts.list()
    for (const { id } of items) await text(hf, id)
    await collect({ graceMs: 0 })
    expect(await collect({ graceMs: 0 })).toMatchObject({
      contents: 0,
      leftovers: 0,
      seen: new Set(items.map(({ sha256 }) => sha256)).size,
    })
  })

  it('refuses the commit of a step whose content was removed meanwhile; the step saves it again', async () => {
    const { promise, open: goOn } = gate()
    const { promise: saved, open: hasSaved } = gate()
    let bodies = 0
    const work = workflow('work', (ctx) =>
      ctx.step('slow', async ({ artifacts }) => {
        bodies++
        const artifact = await artifacts.save({ name: 'n', type: 'analysis_result', content: 'slow' })
        hasSaved()
        await promise
        return artifact.id
      }),
    )
    const { hf, collect } = await openBoth()
    hf.register(work)
    const run = await hf.start(work, undefined, { id: 't' })
    await saved
    expect(await collect({ graceMs: 0 })).toMatchObject({ contents: 1 })
    goOn()
    expect(await text(hf, await run.result())).toBe('slow')
    expect(bodies).toBe(2)
  })
})

onLocalStores('the folder of artifacts', (scene) => {
  const { open } = scene
  const filesIn = (dir: string): string[] =>
    readdirSync(dir, { recursive: true, withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [] : [join(entry.parentPath, entry.name)],
    )

  it('has equal content of an owner once, and none of its names is anything but a sum', async () => {
    const root = join(scene.folder, 'kept')
    const hf = await open({ artifacts: `file:${root}` })
    for (const name of ['a', 'b', 'c']) await hf.artifacts.save({ name, type: 'generated_file', content: 'same' })
    await hf.as('../x').artifacts.save({ name: 'a', type: 'generated_file', content: 'same' })
    const files = filesIn(root)
    expect(files).toHaveLength(2)
    for (const file of files) {
      expect(file.slice(root.length)).toMatch(/^\/[0-9a-f]{64}\/[0-9a-f]{2}\/[0-9a-f]{64}-[0-9a-f-]{36}$/)
      expect(statSync(file).mode & 0o077).toBe(0)
      expect(readFileSync(file, 'utf8')).toBe('same')
    }
  })

  it('is verified: what was changed, cut, replaced by a link or lost is corrupt_record, and no byte is returned', async () => {
    const root = join(scene.folder, 'kept')
    const hf = await open({ artifacts: `file:${root}` })
    const large = Buffer.alloc(3_000_000, 'holdfast')
    const damages: ((file: string) => void)[] = [
      (file) => writeFileSync(file, Buffer.concat([large.subarray(0, -1), Buffer.from('x')])),
      (file) => writeFileSync(file, large.subarray(0, -1)),
      (file) => {
        writeFileSync(join(scene.folder, 'elsewhere'), large)
        rmSync(file)
        symlinkSync(join(scene.folder, 'elsewhere'), file)
      },
      (file) => rmSync(file),
    ]
    for (const damage of damages) {
      rmSync(root, { recursive: true, force: true })
      const hf2 = await open({ artifacts: `file:${root}` })
      const { id } = await hf2.artifacts.save({ name: 'n', type: 'generated_file', content: large })
      const [file = ''] = filesIn(root)
      damage(file)
      expect(await codeOfRejection(hf.artifacts.open(id))).toBe('corrupt_record')
      // Saved again, it is there again, for both.
      await hf2.artifacts.save({ name: 'n', type: 'generated_file', content: large })
      expect((await (await hf.artifacts.open(id)).bytes()).length).toBe(large.length)
    }
  })

  it('is refused where a folder in it is a link that leads elsewhere', async () => {
    const root = join(scene.folder, 'kept')
    const hf = await open({ artifacts: `file:${root}` })
    await hf.artifacts.save({ name: 'n', type: 'generated_file', content: 'x' })
    rmSync(join(root, 'incoming'), { recursive: true })
    symlinkSync(scene.folder, join(root, 'incoming'))
    expect(await codeOfRejection(hf.artifacts.save({ name: 'n', type: 'generated_file', content: 'y' }))).toBe('corrupt_record')
  })

  it('has nothing half in it after a stream that fails', async () => {
    const root = join(scene.folder, 'kept')
    const hf = await open({ artifacts: `file:${root}` })
    const failing = async function* () {
      yield 'half'
      throw new Error('gone')
    }
    expect(await codeOfRejection(hf.artifacts.save({ name: 'n', type: 'generated_file', content: failing }))).toBe(
      'stream_failed',
    )
    expect(filesIn(root)).toEqual([])
  })

  it('can not be read by a process that was opened without it, which says so; what is in the store can', async () => {
    const hf = await open({ artifacts: `file:${join(scene.folder, 'kept')}` })
    const without = await open({ artifacts: 'store:' })
    const { id } = await hf.artifacts.save({ name: 'n', type: 'generated_file', content: 'x' })
    const { id: inside } = await hf.artifacts.save({ name: 'n', type: 'analysis_result', content: 'x' })
    expect(await codeOfRejection(without.artifacts.open(id))).toBe('store_unavailable')
    expect(await text(without, inside)).toBe('x')
    expect((await without.verify()).damaged.map(({ what }) => what)).toEqual(['artifact'])
    // Saved there, it is there for both.
    await without.artifacts.save({ name: 'n', type: 'generated_file', content: 'x' })
    expect([await text(without, id), await text(hf, id)]).toEqual(['x', 'x'])
  })

  it('that is no folder, or a place that there is not, is refused with a code', async () => {
    writeFileSync(join(scene.folder, 'file'), '')
    const hf = await open({ artifacts: `file:${join(scene.folder, 'file')}` })
    expect(await codeOfRejection(hf.artifacts.save({ name: 'n', type: 'generated_file', content: 'x' }))).toBe(
      'store_unavailable',
    )
    for (const artifacts of ['', 'file:', 'ftp://x', 3])
      expect(await codeOfRejection(open({ artifacts: artifacts as never }))).toBe('invalid_url')
  })
})

onSqlite('a folder of artifacts', (scene) => {
  it('on a disk that is full is storage_full and has nothing half in it; with room, the step saves', async () => {
    const disk = join(scene.folder, 'disk')
    mkdirSync(disk)
    const program = startProgramMounted(`mount -t tmpfs -o size=12m tmpfs '${disk}'`, 'fill-folder', scene.url, disk)
    expect(await program.said('refused')).toEqual({ code: 'storage_full', files: 0, listed: 0 })
    expect(await program.said('saved')).toEqual({ length: 3_000_000, bodies: 2 })
    expect(await program.ended).toBe(0)
  })
})
