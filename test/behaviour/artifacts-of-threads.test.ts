// biome-ignore-all lint/suspicious/noAssignInExpressions: changes of a bundle in one line each

import { createHash } from 'node:crypto'
import { readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { copyStore, type Holdfast, open as openHoldfast, type ThreadBundle, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { RecordQuery } from '../../src/store/store.ts'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

const save = workflow<{ name: string; content: string }, string>('save', async (ctx, { name, content }) => {
  const saved = await ctx.step('save', ({ artifacts }) => artifacts.save({ name, type: 'analysis_result', content }))
  await ctx.artifacts.save({ name: `${name} said`, type: 'message_content', content: `${content} said` })
  return saved.id
})

const inThread = (threadId: string) => ({ principal: { role: 'thread', threadId } as const })

/** Names, versions and contents of what counts in a thread. */
async function seen(hf: Holdfast, threadId: string): Promise<string[]> {
  const { items } = await hf.artifacts.list({ threadId, ...inThread(threadId) })
  return Promise.all(
    items.map(async ({ id, name, version }) => {
      const which = { name, version, threadId }
      const content = await (await hf.artifacts.open(which, inThread(threadId))).text()
      expect((await hf.artifacts.get(which, inThread(threadId)))?.id).toBe(id)
      return `${name} ${version}: ${content}`
    }),
  )
}

onEveryStore('the artifacts of a thread', ({ open, openWrapped, advance }) => {
  it('are in a fork as they were there, with references of its own', async () => {
    const hf = await open({ workflows: [save] })
    const first = await hf.thread('t').run(save, { name: 'a', content: 'one' })
    const [{ checkpoint } = { checkpoint: '' }] = (await hf.thread('t').checkpoints()).slice(-1)
    await hf.thread('t').run(save, { name: 'a', content: 'two' })
    const fork = await hf.thread('t').fork(checkpoint, { threadId: 'f' })
    expect(await seen(hf, 'f')).toEqual(['a 1: one', 'a said 1: one said'])
    expect(await seen(hf, 't')).toEqual(['a 1: one', 'a said 1: one said', 'a 2: two', 'a said 2: two said'])
    await hf.thread('f').run(save, { name: 'a', content: 'three' })
    await hf.thread('t').delete()
    expect(await seen(hf, 'f')).toEqual(['a 1: one', 'a said 1: one said', 'a 2: three', 'a said 2: three said'])
    expect((await hf.artifacts.get(first))?.threadId).toBe('f')
    expect(await hf.artifacts.delete(first)).toBe(true)
    expect(fork.id).toBe('f')
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('that are deleted and collected while it is forked are not in the fork; the others keep their content', async () => {
    const collecting = await open({ worker: false })
    let isForking = false
    const hf = await openWrapped(
      (store) => ({
        ...wrapStore(store, {}),
        readRecords: async (query: RecordQuery) => {
          const found = await store.readRecords(query)
          if (!isForking || query.collection !== 'artifact') return found
          isForking = false
          await collecting.artifacts.delete({ name: 'a', threadId: 't' }, inThread('t'))
          expect(await collecting.gc()).toMatchObject({ artifacts: 1 })
          return found
        },
      }),
      { workflows: [save] },
    )
    await hf.thread('t').run(save, { name: 'a', content: 'one' })
    const [{ checkpoint } = { checkpoint: '' }] = (await hf.thread('t').checkpoints()).slice(-1)
    advance(25 * 3_600_000)
    isForking = true
    await hf.thread('t').fork(checkpoint, { threadId: 'f' })
    expect(isForking).toBe(false)
    expect(await seen(hf, 'f')).toEqual(['a said 1: one said'])
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('that two checkpoints differ in are named by their diff', async () => {
    const hf = await open({ workflows: [save] })
    await hf.thread('t').run(save, { name: 'a', content: 'one' })
    const [{ checkpoint: before } = { checkpoint: '' }] = (await hf.thread('t').checkpoints()).slice(-1)
    const fork = await hf.thread('t').fork(before, { threadId: 'f' })
    const id = await fork.run(save, { name: 'b', content: 'two' })
    await hf.artifacts.delete({ name: 'b', threadId: 'f' })
    const [{ checkpoint: after } = { checkpoint: '' }] = (await hf.thread('f').checkpoints()).slice(-1)
    const { artifacts } = await hf.debug.diff(before, after)
    expect(artifacts.map(({ type, data, step }) => [type, data['name'], step])).toEqual([
      ['artifact_saved', 'b', 'save'],
      ['artifact_saved', 'b said', 'artifacts.save'],
      ['artifact_deleted', 'b', null],
    ])
    expect(artifacts[0]?.data['id']).toBe(id)
  })

  it('of a fork inside a run are those on its tape; the copy of the run continues with them', async () => {
    const work = workflow('work', async (ctx) => {
      const { id } = await ctx.artifacts.save({ name: 'n', type: 'message_content', content: 'said' })
      await ctx.checkpoint('here')
      await ctx.artifacts.save({ name: 'later', type: 'message_content', content: 'later' })
      await ctx.waitFor('go')
      return (await ctx.artifacts.open(id)).text()
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    const fork = await hf.thread('t').fork('here', { threadId: 'f' })
    expect(await seen(hf, 'f')).toEqual(['n 1: said'])
    await run.cancel()
    await hf.thread('t').delete()
    const copy = await hf.runs.get<string>(fork.runId as string)
    await copy.resume()
    await hf.signal(copy.id, 'go')
    expect(await copy.result()).toBe('said')
    expect(await seen(hf, 'f')).toEqual(['n 1: said', 'later 1: later'])
  })

  it('go back with it and forward again; their versions are not given twice, and by their ids they can be read', async () => {
    const hf = await open({ workflows: [save] })
    const thread = hf.thread('t')
    await thread.run(save, { name: 'a', content: 'one' })
    const [then] = (await thread.checkpoints()).slice(-1)
    const second = await thread.run(save, { name: 'a', content: 'two' })
    const [later] = (await thread.checkpoints()).slice(-1)
    await thread.rewind(then?.checkpoint as string)
    expect(await seen(hf, 't')).toEqual(['a 1: one', 'a said 1: one said'])
    expect(await hf.artifacts.get({ name: 'a', threadId: 't' })).toMatchObject({ version: 1 })
    expect(await hf.artifacts.get(second)).toMatchObject({ version: 2, isTakenBack: true })
    expect((await hf.artifacts.list({ threadId: 't', includeTakenBack: true })).items).toHaveLength(2)
    await thread.run(save, { name: 'a', content: 'three' })
    expect(await seen(hf, 't')).toEqual(['a 1: one', 'a said 1: one said', 'a 3: three', 'a said 3: three said'])
    await thread.rewind(later?.checkpoint as string)
    expect(await seen(hf, 't')).toEqual(['a 1: one', 'a said 1: one said', 'a 2: two', 'a said 2: two said'])
    expect(await hf.artifacts.get(second)).not.toHaveProperty('isTakenBack')
  })

  it('of a run go back with its rollback', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.artifacts.save({ name: 'a', type: 'analysis_result', content: 'a' })
      await ctx.checkpoint('here')
      await ctx.artifacts.save({ name: 'b', type: 'analysis_result', content: 'b' })
      await ctx.waitFor('go')
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 't' })
    await becomes(run, 'waiting')
    await run.rollback('here')
    expect(await seen(hf, 't')).toEqual(['a 1: a'])
    await run.resume()
    await hf.signal('t', 'go')
    await run.result()
    expect(await seen(hf, 't')).toEqual(['a 1: a', 'b 2: b'])
  })

  it('are in its bundle with their bytes, and in no bundle without them', async () => {
    const hf = await open({ workflows: [save] })
    await hf.thread('t').run(save, { name: 'a', content: 'one' })
    await hf.artifacts.save({ name: 'file', type: 'generated_file', content: Buffer.alloc(700_000, 'x'), threadId: 't' })
    await hf.artifacts.save({ name: 'nobody', type: 'analysis_result', content: 'of the owner' })
    const bundle = await hf.debug.export('t')
    const other = hf.as('bob')
    await other.debug.import(JSON.stringify(bundle))
    expect(await other.debug.export('t')).toEqual(bundle)
    expect(await seen(other, 't')).toEqual(await seen(hf, 't'))
    expect((await other.artifacts.list({ threadId: null })).items).toEqual([])
    await hf.as('ann').debug.import(await hf.debug.export('t', { artifacts: false }))
    expect((await hf.as('ann').artifacts.list()).items).toEqual([])
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('of a made-up bundle are refused, whatever is wrong with them', async () => {
    const hf = await open({ workflows: [save] })
    await hf.thread('t').run(save, { name: 'a', content: 'one' })
    const bundle = await hf.debug.export('t')
    type Content = { records: Record<string, unknown>[]; artifacts?: Record<string, unknown>[] }
    const forged = (change: (content: Content) => void): ThreadBundle => {
      const content = structuredClone(bundle.content) as unknown as Content
      change(content)
      const hash = createHash('sha256')
      for (const [name, value] of Object.entries(content)) {
        hash.update(JSON.stringify(name))
        for (const item of Array.isArray(value) ? value : [value]) hash.update(`${JSON.stringify(item)}\n`)
      }
      return { ...bundle, sha256: hash.digest('hex'), content: content as never }
    }
    const artifactIn = (content: Content) =>
      content.records.find(({ collection }) => collection === 'artifact') as Record<string, unknown>
    const withPayload = (change: (payload: Record<string, unknown>) => void) =>
      forged((content) => {
        const record = artifactIn(content)
        const payload = JSON.parse(record['payload'] as string)
        change(payload)
        record['payload'] = JSON.stringify(payload)
      })
    const bad = [
      forged((content) => delete content.artifacts),
      forged((content) => void content.artifacts?.pop()),
      forged((content) => void (content.artifacts = [null as never])),
      forged((content) => {
        for (const one of content.artifacts ?? []) one['base64'] = Buffer.from('oneX said').toString('base64')
      }),
      forged((content) => void (artifactIn(content)['collection'] = 'artifact_content')),
      forged((content) => void (artifactIn(content)['collection'] = 'artifact_chunk')),
      forged((content) => void (artifactIn(content)['key'] = 'other')),
      forged((content) => void (artifactIn(content)['fields'] = [])),
      withPayload((payload) => void (payload['threadId'] = 'u')),
      withPayload((payload) => void (payload['name'] = '../../x')),
      withPayload((payload) => void (payload['type'] = 'x')),
      withPayload((payload) => void (payload['sha256'] = '../../../../etc/passwd')),
      withPayload((payload) => void (payload['size'] = -1)),
      withPayload((payload) => void delete payload['id']),
    ]
    for (const [index, one] of bad.entries()) {
      expect(await codeOfRejection(hf.as('bob').debug.import(one)), `bundle ${index}`).toBe('invalid_input')
    }
    expect((await hf.as('bob').artifacts.list({ threadId: 't', ...inThread('t') })).items).toEqual([])
    await hf.as('bob').debug.import(forged(() => {}))
    expect(await seen(hf.as('bob'), 't')).toEqual(await seen(hf, 't'))
  })
})

onLocalStores('a store with artifacts', (scene) => {
  it('is copied with their bytes, from a folder into a store and back', async () => {
    const folder = (name: string) => join(scene.folder, name)
    const from = `sqlite:${folder('from.db')}`
    const hf = await openHoldfast(from, { workflows: [save], logger: false })
    await hf.thread('t').run(save, { name: 'a', content: 'one' })
    const large = Buffer.alloc(700_000, 'y')
    const { id } = await hf.as('bob').artifacts.save({ name: 'file', type: 'generated_file', content: large })
    const gone = await hf.artifacts.save({ name: 'gone', type: 'generated_file', content: 'gone' })
    await hf.artifacts.delete(gone.id)
    await hf.close()
    const [middle, last] = [`sqlite:${folder('middle.db')}`, `sqlite:${folder('last.db')}`]
    const report = await copyStore(from, middle, { artifacts: { to: 'store:' } })
    expect(report.contents).toBe(3)
    expect(await copyStore(from, middle, { artifacts: { to: 'store:' } })).toEqual(report)
    rmSync(folder('from.db.artifacts'), { recursive: true })
    expect((await copyStore(middle, last)).contents).toBe(3)
    const copy = await openHoldfast(last, { worker: false, logger: false })
    expect(Buffer.from(await (await copy.as('bob').artifacts.open(id)).bytes()).equals(large)).toBe(true)
    expect(await seen(copy, 't')).toEqual(['a 1: one', 'a said 1: one said'])
    expect(await copy.verify()).toMatchObject({ isSound: true, artifacts: 3 })
    await copy.close()
    expect(await codeOfRejection(copyStore(from, `sqlite:${folder('none.db')}`))).toBe('corrupt_record')
  })

  it('is verified with their bytes: each artifact whose content is damaged is named', async () => {
    const root = join(scene.folder, 'kept')
    const hf = await scene.open({ artifacts: `file:${root}` })
    const save = (name: string, content: string) => hf.artifacts.save({ name, type: 'generated_file', content, threadId: 't' })
    for (const [name, content] of [
      ['a', 'same'],
      ['b', 'same'],
      ['c', 'other'],
      ['d', 'third'],
    ] as const)
      await save(name, content)
    expect(await hf.verify()).toMatchObject({ isSound: true, artifacts: 4 })
    const files = readdirSync(root, { recursive: true })
      .map(String)
      .filter((name) => /[0-9a-f]{64}-/.test(name))
    const fileOf = (content: string) =>
      join(root, files.find((file) => file.includes(createHash('sha256').update(content).digest('hex'))) ?? '')
    writeFileSync(fileOf('same'), 'sAme')
    truncateSync(fileOf('other'), 2)
    const { damaged } = await hf.verify()
    expect(damaged.map(({ what, message }) => [what, /\((\w), version 1\)/.exec(message)?.[1]])).toEqual([
      ['artifact', 'a'],
      ['artifact', 'b'],
      ['artifact', 'c'],
    ])
    // Saving the same content again repairs it.
    await save('a', 'same')
    expect((await hf.verify()).damaged).toHaveLength(1)
  })
})
