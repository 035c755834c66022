import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { copyStore, type OpenTarget, open, type ThreadBundle, workflow } from 'holdfast'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { allKinds, type Place, storeKinds } from './places.ts'
import { makeChat } from './programs/chat.ts'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const chat = makeChat((said) => `you said ${said}`)

/** A workflow that gets stuck after a step and an effect until `letGo` is called, and what it did. */
function makeTrip() {
  const done: string[] = []
  const { promise, open: letGo } = gate()
  const trip = workflow('trip', async (ctx) => {
    const seat = await ctx.step('book', () => {
      done.push('booked')
      return { seat: 7, at: new Date(0) }
    })
    await ctx.once('pay', {
      key: 'payment',
      run: () => {
        done.push('paid')
        return 'receipt'
      },
    })
    await ctx.step('leave', async () => {
      await promise
      done.push('left')
    })
    return seat
  })
  return { trip, done, letGo }
}

/** A thread with a run whose process died in the middle, as a bundle that went through a file. */
function throughFile(bundle: ThreadBundle): string {
  return JSON.stringify(bundle)
}

onEveryStore('a thread that is exported', (scene) => {
  it('and imported into another store has the same history, state and results there, and goes on', async () => {
    const hf = await scene.open({ workflows: [chat] })
    await hf.as('ann').thread('alice').run(chat, { say: 'my name is Alice' }, { id: 'first' })
    const bundle = await hf.as('ann').debug.export('alice')

    const other = await open('memory:', { workflows: [chat] })
    const thread = await other.as('bob').debug.import(throughFile(bundle))
    expect(thread.id).toBe('alice')
    expect(await thread.state()).toEqual(await hf.as('ann').thread('alice').state())
    expect(await thread.checkpoints()).toEqual(await hf.as('ann').thread('alice').checkpoints())
    const [here, there] = [await hf.as('ann').runs.get('first'), await other.as('bob').runs.get('first')]
    expect(await there.result()).toEqual(await here.result())
    expect(await there.events()).toEqual(await here.events())
    expect(await thread.run(chat, { say: 'who am I?' })).toContain('my name is Alice, who am I?')
    await other.close()
  })

  it('and imported into SQLite replays to the same states there, byte for byte in its checksums', async () => {
    const hf = await scene.open({ workflows: [chat] })
    const alice = hf.thread('alice')
    await alice.run(chat, { say: 'my name is Alice' }, { id: 'first' })
    const early = (await alice.info()).checkpoint as string
    await alice.run(chat, { say: 'who am I?' }, { id: 'second' })
    await alice.rewind(early, { by: 'dana' })
    const end = (await hf.debug.timeline('second')).at(-1)?.checkpoint as string
    const replied = (await hf.debug.timeline('second')).find(({ step }) => step !== null)
    const fork = await alice.fork(end, { replace: { [replied?.step as string]: 'something else' }, by: 'dana' })

    const other = await open(`sqlite:${join(scene.folder, 'imported.db')}`, { worker: false })
    for (const id of ['alice', fork.id]) {
      const bundle = await hf.debug.export(id)
      await other.debug.import(throughFile(bundle))
      expect((await other.debug.export(id)).sha256).toBe(bundle.sha256)
      expect(await other.debug.replay(id)).toEqual(await hf.debug.replay(id))
      expect(await other.debug.timeline(id)).toEqual(await hf.debug.timeline(id))
      for (const { checkpoint } of await other.thread(id).checkpoints())
        expect(await other.thread(id).stateAt(checkpoint)).toEqual(await hf.thread(id).stateAt(checkpoint))
    }
    expect(await other.verify()).toMatchObject({ isSound: true, threads: 2, runs: 3 })
    await other.close()
  })

  it('can be taken in from any other store', async () => {
    const other = await open('memory:', { workflows: [chat] })
    await other.thread('alice').run(chat, { say: 'my name is Alice' }, { id: 'first' })
    const bundle = await other.debug.export('first')
    const hf = await scene.open({ workflows: [chat] })
    const thread = await hf.debug.import(Buffer.from(throughFile(bundle)))
    expect(await (await hf.runs.get('first')).events()).toEqual(await (await other.runs.get('first')).events())
    expect(await thread.run(chat, { say: 'who am I?' })).toContain('my name is Alice, who am I?')
    expect((await hf.debug.export('alice')).sha256).not.toBe(bundle.sha256)
    await other.close()
  })

  it('in the middle of a run goes on there: recorded steps and effects are not repeated', async () => {
    const before = makeTrip()
    const { hf, dead } = await scene.openMortal({ workflows: [before.trip] }, { after: 'effect_completed' })
    void hf.start(before.trip, undefined, { id: 'trip' }).catch(() => {})
    await dead
    const bundle = await (await scene.open({ worker: false })).debug.export('trip')

    const after = makeTrip()
    after.letGo()
    const other = await open('memory:', { workflows: [after.trip] })
    await other.debug.import(bundle)
    expect(await (await other.runs.get('trip')).result()).toEqual({ seat: 7, at: new Date(0) })
    expect([before.done, after.done]).toEqual([['booked', 'paid'], ['left']])
    await other.close()
  })

  it('in the middle of a run continues for another owner: effects keep the keys that they were sent under', async () => {
    const sent: string[] = []
    const pay = workflow('pay', async (ctx) => {
      const first = await ctx.once('pay', { run: (key) => sent.push(key) })
      await ctx.waitFor('go')
      return first
    })
    const hf = await scene.open({ workflows: [pay] })
    const run = await hf.as('ann').start(pay, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    const other = await open('memory:', { workflows: [pay] })
    await other.as('bob').debug.import(throughFile(await hf.as('ann').debug.export('p')))
    await other.as('bob').signal('p', 'go', 1)
    expect(await (await other.as('bob').runs.get('p')).result()).toBe(1)
    expect(sent).toEqual(['ann:p/pay#1'])
    await other.close()
  })

  it('with questions open is answered there, each by its id', async () => {
    const ask = workflow('ask', (ctx) => Promise.all(['a', 'b'].map((question) => ctx.ask('approve', { question }))))
    const hf = await scene.open({ workflows: [ask] })
    await becomes(await hf.start(ask, undefined, { id: 'r' }), 'waiting')
    const bundle = await hf.debug.export('r')

    const other = await open('memory:', { workflows: [ask] })
    await other.debug.import(throughFile(bundle))
    const items = await other.inbox()
    expect(items).toEqual(await hf.inbox())
    for (const item of items) if (item.kind === 'question') await other.answer('r', item.name, item.question, { id: item.id })
    expect(await (await other.runs.get('r')).result()).toEqual(['a', 'b'])
    expect(await other.inbox()).toEqual([])
    await other.close()
  })

  it('can be imported with its runs paused, to look at it first', async () => {
    const other = await open('memory:', { worker: false })
    const { trip, letGo, done } = makeTrip()
    await other.start(trip, undefined, { id: 'trip' })
    const bundle = await other.debug.export('trip')
    await other.close()

    const hf = await scene.open({ workflows: [trip] })
    await hf.debug.import(bundle, { paused: true })
    const run = await hf.runs.get('trip')
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(done).toEqual([])
    letGo()
    await run.resume()
    expect(await run.result()).toMatchObject({ seat: 7 })
  })

  it('is not overwritten: importing what is there already is a conflict', async () => {
    const hf = await scene.open({ workflows: [chat] })
    await hf.thread('alice').run(chat, { say: 'hi' })
    const bundle = await hf.debug.export('alice')
    expect(await codeOfRejection(hf.debug.import(bundle))).toBe('conflict')
    await hf.thread('alice').run(chat, { say: 'again' })
    expect(await hf.thread('alice').state()).toMatchObject({ messages: { length: 4 } })
  })

  it('is refused when it is damaged, cut off, of a later version or made up, and nothing is imported', async () => {
    const hf = await scene.open({ workflows: [chat] })
    await hf.as('ann').thread('alice').run(chat, { say: 'hi' })
    const bundle = await hf.as('ann').debug.export('alice')
    const text = throughFile(bundle)
    const spoilt: [unknown, string][] = [
      [text.replace('you said hi', 'you said no'), 'corrupt_record'],
      [text.slice(0, -10), 'invalid_input'],
      [{ ...bundle, version: 2 }, 'schema_too_new'],
      [{ ...bundle, format: 'something else' }, 'invalid_input'],
      [null, 'invalid_input'],
      [17, 'invalid_input'],
    ]
    for (const [given, code] of spoilt) expect(await codeOfRejection(hf.debug.import(given as string))).toBe(code)
    expect((await hf.runs.list()).items).toEqual([])
  })

  it('is told from one that is not there, was deleted or belongs to somebody else', async () => {
    const hf = await scene.open({ workflows: [chat] })
    await hf.thread('alice').run(chat, { say: 'hi' })
    expect(await codeOfRejection(hf.debug.export('bob'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.as('ann').debug.export('alice'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.debug.export(''))).toBe('invalid_id')
    await hf.thread('alice').delete()
    expect(await codeOfRejection(hf.debug.export('alice'))).toBe('thread_deleted')
  })
})

describe('copyStore', () => {
  let folder: string
  let places: Place[]
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-copy-'))
    places = []
  })
  afterEach(async () => {
    for (const place of places) await place.leave?.()
    rmSync(folder, { recursive: true, force: true })
  })

  /** A store of this kind, beside the one that `placeOf` made before. */
  async function placeOf(name: string, part: 'from' | 'to'): Promise<OpenTarget> {
    const kind = allKinds.find((one) => one.name === name)
    const place = await kind?.create(mkdtempSync(join(folder, part)), () => 0)
    if (place === undefined) throw new Error(`there is no kind of store called ${name}`)
    places.push(place)
    if (name !== 'postgres') return place.target
    // The tests of a file share a database there.
    await place.sql?.(`DROP SCHEMA IF EXISTS copy_${part} CASCADE`)
    return `${place.url}`.replace(/schema=\w+/, `schema=copy_${part}`)
  }

  /** Threads of several owners, one of them deleted, and a run in flight whose process is gone. */
  async function furnish(target: OpenTarget): Promise<string[]> {
    const { trip, done } = makeTrip()
    const hf = await open(target, { workflows: [chat, trip], worker: { closeGraceMs: 0 } })
    for (const owner of ['', 'ann']) {
      await hf.as(owner).thread('alice').run(chat, { say: 'my name is Alice' })
      await hf.as(owner).thread('alice').run(chat, { say: 'who am I?' })
    }
    await hf.thread('gone').run(chat, { say: 'forget me' })
    await hf.thread('gone').delete()
    await hf.queues.set('mails', { concurrency: 3, isPaused: true })
    await hf
      .as('ann')
      .memory.of('alice')
      .remember('Alice is allergic to nuts', { tags: ['food'] })
    const run = await hf.start(trip, undefined, { id: 'trip' })
    await becomes(run, 'running')
    while (done.length < 2) await new Promise((resolve) => setTimeout(resolve, 5))
    await hf.close()
    return done
  }

  for (const from of storeKinds) {
    for (const to of storeKinds) {
      it(`copies everything from ${from.name} to ${to.name}, verified by checksums, and runs in flight go on there`, async () => {
        const [source, target] = [await placeOf(from.name, 'from'), await placeOf(to.name, 'to')]
        const done = await furnish(source)
        const phases = new Set<string>()
        const report = await copyStore(source, target, { onProgress: ({ phase }) => phases.add(phase) })
        expect(report).toMatchObject({ threads: 4, runs: 5, operations: 1, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) })
        expect([...phases]).toEqual(['copying', 'verifying'])

        const { trip, letGo, done: doneThere } = makeTrip()
        letGo()
        const hf = await open(target, { workflows: [chat, trip] })
        expect(await (await hf.runs.get('trip')).result()).toMatchObject({ seat: 7 })
        expect([done, doneThere]).toEqual([['booked', 'paid'], ['left']])
        expect(await hf.queues.get('mails')).toMatchObject({ concurrency: 3, isPaused: true, maxQueued: null })
        expect(await hf.as('ann').thread('alice').run(chat, { say: 'again' })).toContain('my name is Alice')
        expect((await hf.runs.list()).items.map(({ id }) => id)).toContain('trip')
        const facts = await hf
          .as('ann')
          .memory.of('alice')
          .recall('which allergies?', { tags: ['food'] })
        expect(facts.map(({ text, scores }) => [text, scores])).toEqual([
          ['Alice is allergic to nuts', { lexical: expect.any(Number), rank: 1 }],
        ])
        await hf.close()
      })
    }
  }

  it('can be called again after it broke off: what was copied is compared and left as it is', async () => {
    const [source, target] = [await placeOf('sqlite', 'from'), await placeOf('memory', 'to')]
    await furnish(source)
    const broken = copyStore(source, target, {
      onProgress: ({ threads }) => {
        if (threads === 2) throw new Error('the power went')
      },
    })
    await expect(broken).rejects.toThrow('the power went')
    const report = await copyStore(source, target)
    expect(report.threads).toBe(4)
    expect(await copyStore(source, target)).toEqual(report)
  })

  it('refuses to copy while a run is being executed, and says by whom', async () => {
    const [source, target] = [await placeOf('sqlite', 'from'), await placeOf('memory', 'to')]
    const { trip, letGo } = makeTrip()
    const hf = await open(source, { workflows: [trip] })
    const run = await hf.start(trip, undefined, { id: 'trip' })
    await becomes(run, 'running')
    await expect(copyStore(source, target)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('is being executed by'),
    })
    letGo()
    await hf.close()
  })

  it('refuses to mix stores: another thread of the same id is a conflict', async () => {
    const [source, target] = [await placeOf('sqlite', 'from'), await placeOf('sqlite', 'to')]
    for (const [at, say] of [
      [source, 'one'],
      [target, 'another'],
    ] as const) {
      const hf = await open(at, { workflows: [chat] })
      await hf.thread('alice').run(chat, { say })
      await hf.close()
    }
    expect(await codeOfRejection(copyStore(source, target))).toBe('conflict')
  })
})
