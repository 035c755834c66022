// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { type Holdfast, HoldfastError, NotHappened, state, type VerifyProgress, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { recordChecksum, sealChecksum } from '../../src/model/checksum.ts'
import type { LogRecord } from '../../src/model/event.ts'
import { readWholeThread } from '../../src/store/read-whole-thread.ts'
import type { Store } from '../../src/store/store.ts'
import type { WholeThread } from '../../src/store/thread-image.ts'
import { becomes, codeOfRejection } from './runs.ts'
import { onEverySqlStore, onEveryStore, type Scene } from './stores.ts'

const texts = state({ version: 1, initial: () => ({ texts: [] as string[], last: '' }) })

const child = workflow('child', async (ctx, n: number) => ctx.step('double', () => n * 2))
const work = workflow({ name: 'work', state: texts }, async (ctx, text: string) => {
  await ctx.step('write', (step) => {
    step.stream('tokens').write(text)
    step.update((draft) => void draft.texts.push(text.repeat(500)))
  })
  await ctx.once('mail', { run: () => 'sent', undo: () => {} })
  await ctx.call(child, 21)
  await ctx.checkpoint('done')
  if (text === 'flaw') throw new Error('flaw')
  if (text === 'asks') await ctx.ask('name', { question: 'who?' })
  if (text === 'unsure') await ctx.once('lost', { run: () => Promise.reject(new Error('no answer')) })
  if (text === 'sleeps') await ctx.sleep(3_600_000)
  return ctx.state.texts.length
})

/** Streams, writes a state of which there are snapshots, and mails. */
const chatty = workflow({ name: 'chatty', state: texts }, async (ctx, text: string) => {
  for (let n = 0; n < 20; n++)
    await ctx.step('say', (step) => {
      step.stream('tokens').write(text)
      step.update((draft) => void (draft.last = `${text} ${n}`.repeat(2_000)))
    })
  await ctx.once('mail', { key: `mail ${text}`, run: () => 'sent' })
  return text
})

onEveryStore('verifying a store', ({ open, openWrapped }) => {
  it('finds nothing in a sound one, whatever was done in it', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    for (let n = 0; n < 15; n++) await thread.run(work, `text ${n}`)
    const middle = (await thread.checkpoints())[60]?.checkpoint as string
    await thread.rewind(middle)
    await thread.update<{ texts: string[] }>((draft) => void draft.texts.push('by hand'))
    for (const text of ['flaw', 'asks', 'unsure', 'sleeps']) {
      const run = await hf.start(work, text, { id: text })
      await becomes(run, text === 'flaw' ? 'failed' : 'waiting')
    }
    await hf.as('other').run(work, 'of another owner')
    await hf.run(chatty, 'x')
    await thread.fork(middle, { threadId: 'fork' })
    const inside = await hf.thread('asks').fork('done', { edit: (draft: { texts: string[] }) => void draft.texts.push('edited') })
    await inside.resume()
    await hf.run(work, 'gone', { id: 'gone' })
    await hf.thread('gone').delete()
    const rolled = await hf.runs.get('sleeps')
    await rolled.rollback((await hf.thread('sleeps').checkpoints())[1]?.checkpoint as string)
    const told: VerifyProgress[] = []
    const report = await hf.verify({ onProgress: (progress) => told.push(progress) })
    expect(report.damaged).toEqual([])
    expect(report).toMatchObject({ isSound: true, threads: expect.any(Number) })
    expect(report.records).toBeGreaterThan(250)
    expect(report.snapshots).toBeGreaterThan(0)
    expect(told.at(-1)).toEqual({ threads: report.threads, records: report.records, damaged: 0 })
    const end = new AbortController()
    end.abort(new Error('enough'))
    await expect(hf.verify({ signal: end.signal })).rejects.toThrow('enough')
    expect(await codeOfRejection(hf.verify({ progress: true } as never))).toBe('invalid_input')
  })

  it('gives no false alarm while workers are busy and threads are deleted', async () => {
    const hf = await open()
    let isOver = false
    const busy = Promise.all(
      [1, 2, 3].map(async (lane) => {
        for (let n = 0; !isOver; n++) {
          await hf.thread(`t ${lane}`).run(work, `text ${n}`)
          if (n % 3 === 2) await hf.thread(`t ${lane}`).delete()
        }
      }),
    )
    for (let n = 0; n < 8; n++) expect((await hf.verify()).damaged).toEqual([])
    isOver = true
    await busy
  })

  it('a key that was free again and belongs to another thread now is no damage', async () => {
    const hf = await open()
    const tries = workflow('tries', (ctx, isGood: boolean) =>
      ctx.once('mail', {
        key: 'shared',
        retry: { attempts: 1 },
        run: () => {
          if (!isGood) throw new NotHappened()
          return 'sent'
        },
      }),
    )
    await codeOfRejection(hf.run(tries, false, { id: 'first' }))
    await hf.run(tries, true, { id: 'second' })
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('names what does not agree in a thread, and looks at the others nevertheless', async () => {
    const { hf, store } = await openBoth(openWrapped)
    for (const id of ['a', 'b']) await hf.run(chatty, id, { id })
    const right = (await readWholeThread(store, { owner: '', threadId: 'b' })) as WholeThread
    const expected: [string, string[]][] = []
    for (const [name, { alter, what }] of Object.entries(disagreements)) {
      const whole = alter(ofOwner(structuredClone(right), name))
      expect(await store.restoreThread(whole)).toEqual({ ok: true })
      expected.push([name, what])
    }
    await hf.run(work, 'c', { id: 'c' })
    const { damaged, threads } = await hf.verify()
    const found = Map.groupBy(damaged, ({ owner }) => owner)
    for (const [name, what] of expected)
      expect([name, [...new Set(found.get(name)?.map((one) => one.what))]]).toEqual([name, what])
    expect([...found.keys()].sort()).toEqual(
      expected
        .filter(([, what]) => what.length > 0)
        .map(([name]) => name)
        .sort(),
    )
    expect(new Set(damaged.map(({ threadId }) => threadId))).toEqual(new Set(['b']))
    // A call of `work` has a child in a thread of its own.
    expect(threads).toBe(4 + expected.length)
  })

  it('a store that fails is thrown, not reported as damage', async () => {
    let failing = ''
    const down = () => Promise.reject(new HoldfastError('store_unavailable', 'down'))
    const acts = [
      'scanThreads',
      'readThreadImage',
      'readLogs',
      'readSnapshot',
      'listCheckpoints',
      'readChunks',
      'listRuns',
      'listUnsure',
    ]
    const hf = await openWrapped(
      (store) =>
        ({
          ...wrapStore(store, {}),
          ...Object.fromEntries(
            acts.map((act) => [
              act,
              (...args: never[]) => (failing === act ? down() : (store[act as 'now'] as (...given: never[]) => unknown)(...args)),
            ]),
          ),
        }) as Store,
    )
    await hf.run(work, 'a', { id: 'a' })
    for (failing of acts) expect([failing, await codeOfRejection(hf.verify())]).toEqual([failing, 'store_unavailable'])
    failing = ''
    expect((await hf.verify()).isSound).toBe(true)
  })

  it('a signal ends it between threads and within a long one', async () => {
    const end = new AbortController()
    let pages = 0
    const hf = await openWrapped((store) => ({
      ...wrapStore(store, {}),
      readLogs: (queries) => {
        if (queries[0]?.threadId === 'long' && ++pages === 3) end.abort(new Error('enough'))
        return store.readLogs(queries)
      },
    }))
    await hf.thread('long').update((draft: { n?: number }) => void (draft.n = 0))
    const many = workflow('many', async (ctx) => {
      for (let n = 0; n < 1_300; n++) void ctx.step('one', () => n)
      await ctx.step('last', () => 0)
    })
    await hf.thread('long').run(many, undefined)
    await expect(hf.verify({ signal: end.signal })).rejects.toThrow('enough')
    expect(pages).toBe(3)
  })
})

/** A thread as it would be if another owner had written it. */
function ofOwner(whole: WholeThread, owner: string): WholeThread {
  const { threadId } = whole.thread
  const last = whole.log.findLast(({ patch }) => patch !== null) as LogRecord
  const patchChecksum = sealChecksum(recordChecksum({ owner, threadId }, last), last.seq)
  return {
    ...whole,
    thread: { ...whole.thread, owner, patchChecksum },
    runs: whole.runs.map((image) => ({ ...image, run: { ...image.run, owner } })),
    operations: whole.operations.map((operation) => ({ ...operation, owner })),
  }
}

/** Ways in which a thread disagrees with itself though every checksum is right, and what is said about them. */
const disagreements: Record<string, { alter: (whole: WholeThread) => WholeThread; what: string[] }> = {
  'nothing altered': { alter: (whole) => whole, what: [] },
  'a snapshot of another state': {
    alter: (whole) => ({ ...whole, snapshots: whole.snapshots.map((one) => ({ ...one, state: '{"texts":[],"last":"other"}' })) }),
    what: ['snapshot'],
  },
  'a lost operation': { alter: (whole) => ({ ...whole, operations: [] }), what: ['operation'] },
  'an operation of a run that is gone': {
    alter: (whole) => ({ ...whole, operations: whole.operations.map((one) => ({ ...one, runId: 'gone' })) }),
    what: ['operation'],
  },
  'an operation that is open after its run ended': {
    alter: (whole) => ({ ...whole, operations: whole.operations.map((one) => ({ ...one, status: 'intended' })) }),
    what: ['operation'],
  },
  'an end at another position': { alter: withRun({ endSeq: 2 }), what: ['run'] },
  'an input at another position': { alter: withRun({ inputSeq: 3 }), what: ['run'] },
  'a tape that begins beyond the log': { alter: withRun({ tapeSeq: 1_000 }), what: ['run'] },
  'a status without its end': { alter: withRun({ status: 'failed' }), what: ['run'] },
  'an end without its time': { alter: withRun({ finishedAt: null }), what: ['run'] },
  'a change of the state that the row does not know': {
    alter: (whole) => ({ ...whole, thread: { ...whole.thread, patchSeq: whole.thread.patchSeq - 1 } }),
    what: ['thread'],
  },
  'a change of the state with another checksum': {
    alter: (whole) => ({ ...whole, thread: { ...whole.thread, patchChecksum: whole.thread.patchChecksum + 1 } }),
    what: ['thread'],
  },
  'a change that does not fit the state': {
    alter: (whole) => ({
      ...whole,
      log: whole.log.map((record) => (record.patch === null ? record : { ...record, patch: '[7]' })),
      thread: { ...whole.thread, patchSeq: 0, patchChecksum: 0 },
    }),
    what: ['record'],
  },
}

function withRun(changed: object): (whole: WholeThread) => WholeThread {
  return (whole) => ({ ...whole, runs: whole.runs.map((image) => ({ ...image, run: { ...image.run, ...changed } })) })
}

async function openBoth(openWrapped: Scene['openWrapped']): Promise<{ hf: Holdfast; store: Store }> {
  let opened: Store | undefined
  const hf = await openWrapped((store) => {
    opened = store
    return store
  })
  return { hf, store: opened as Store }
}

/** SQL that damages the thread or run `b`, or its neighbours' view of it. `T.log` is the table of the log; `AT` selects thread b. */
const damages: Record<string, { sql: string; what: string; says?: string; help?: 'fork' }> = {
  'a record in the middle is missing': {
    sql: 'DELETE FROM T.log WHERE AT AND seq = 40',
    what: 'record',
    says: '40',
    help: 'fork',
  },
  'a record was moved': { sql: 'UPDATE T.log SET seq = 999 WHERE AT AND seq = 40', what: 'record', help: 'fork' },
  'payloads were swapped': {
    sql: "UPDATE T.log SET payload = (SELECT max(payload) FROM T.log WHERE type = 'run_completed') WHERE AT AND seq = 40",
    what: 'record',
    says: 'Record 40 ',
    help: 'fork',
  },
  'the head is lower than the log': {
    sql: "UPDATE T.threads SET head_seq = head_seq - 2, written_seq = head_seq - 2, patch_seq = 0, patch_checksum = 0 WHERE thread_id = 'b'",
    what: 'run',
  },
  'the head is far beyond the log': { sql: "UPDATE T.threads SET head_seq = 4000000000 WHERE thread_id = 'b'", what: 'record' },
  'the row of the thread is impossible': { sql: "UPDATE T.threads SET incarnation = 0 WHERE thread_id = 'b'", what: 'thread' },
  'the row of the run is lost': { sql: "DELETE FROM T.runs WHERE run_id = 'b'", what: 'record' },
  'the row of the run is impossible': { sql: "UPDATE T.runs SET epoch = -1 WHERE run_id = 'b'", what: 'run' },
  'a run runs without a lease': {
    sql: "UPDATE T.runs SET status = 'running', finished_at = NULL WHERE run_id = 'b'",
    what: 'lease',
  },
  'a lease is left on a finished run': { sql: "UPDATE T.runs SET lease_id = LEASE WHERE run_id = 'b'", what: 'lease' },
  'an operation is damaged': { sql: "UPDATE T.operations SET result = '\"other\"' WHERE run_id = 'b'", what: 'operation' },
  'an unread message is damaged': { sql: 'UPDATE T.inbox SET payload = \'"other"\'', what: 'message' },
  'a chunk of a stream is damaged': {
    sql: "UPDATE T.chunks SET payload = '[\"x\"]' WHERE run = (SELECT id FROM T.runs WHERE run_id = 'b')",
    what: 'stream',
  },
  'a chunk of a stream is missing': {
    sql: "DELETE FROM T.chunks WHERE run = (SELECT id FROM T.runs WHERE run_id = 'b') AND first = 1",
    what: 'stream',
  },
  'a snapshot is damaged': {
    sql: "UPDATE T.snapshots SET state = '{}' WHERE AT AND seq = SNAPSHOT",
    what: 'snapshot',
    help: 'fork',
  },
}

onEverySqlStore('verifying a damaged database', (scene) => {
  const isSqlite = () => scene.parameter(1) === '?'
  const run = (sql: string) =>
    scene.sql(
      sql
        .replaceAll('T.', isSqlite() ? 'holdfast_' : 'tables.')
        .replaceAll('AT ', `thread = (SELECT id FROM ${isSqlite() ? 'holdfast_' : 'tables.'}threads WHERE thread_id = 'b') `)
        .replaceAll('LEASE', "'x'"),
    )

  it('values of memory are damaged: each is named, and all others are looked at', async () => {
    const hf = await scene.open({ worker: false })
    for (const owner of ['ann', 'bob']) {
      const session = hf.as(owner).memory.session.of('s')
      await Promise.all(Array.from({ length: 700 }, (_, at) => session.set(`k${at}`, at)))
    }
    const [sound, keys] = [await hf.verify(), ['1:sk13', '1:sk14', '1:sk699']]
    expect(sound).toMatchObject({ isSound: true, memories: 1_400 })
    await run(`UPDATE T.records SET payload = '{"value":7}' WHERE key IN (${keys.map((key) => `'${key}'`).join()})`)
    const { damaged, memories } = await hf.verify()
    const names = ['ann', 'bob'].flatMap((owner) => keys.map((key) => [owner, 'memory', expect.stringContaining(`"${key}"`)]))
    expect(damaged.map(({ owner, what, message }) => [owner, what, message])).toEqual(names)
    expect(memories).toBe(1_394)
  })

  for (const [name, { sql, what, says, help }] of Object.entries(damages)) {
    it(`${name}: it is named, what it says helps, and other threads are read`, async () => {
      const hf = await scene.open({ worker: { quietMs: 10 } })
      for (const id of ['a', 'b', 'c']) await hf.run(chatty, id, { id })
      await hf.close()
      const client = await scene.open({ worker: false, workflows: [chatty] })
      const checkpoints = await client.thread('b').checkpoints()
      await client.thread('b').start(chatty, 'next', { id: 'next' })
      await client.signal('next', 'hello', 'there')
      expect((await client.verify()).damaged).toEqual([])
      const [snapshot] = await run('SELECT max(seq) AS seq FROM T.snapshots WHERE AT ')
      await run(sql.replaceAll('SNAPSHOT', String(snapshot?.['seq'])))
      const { damaged, threads } = await client.verify()
      expect(damaged.map((one) => one.what)).toContain(what)
      expect(new Set(damaged.map(({ threadId }) => threadId))).toEqual(new Set(['b']))
      expect(damaged.length).toBeLessThanOrEqual(5)
      if (says !== undefined) expect(damaged.map(({ message }) => message).join()).toContain(says)
      expect(threads).toBeGreaterThanOrEqual(2)
      if (help === 'fork') {
        const at = damaged.find((one) => one.what === what)?.checkpoint?.split('@')[1]
        const before = checkpoints.filter(({ seq }) => seq < Number(at)).at(-1)?.checkpoint as string
        const fork = await client.thread('b').fork(before, { threadId: 'mended' })
        expect(await fork.state()).toEqual(await client.thread('b').stateAt(before))
      }
    })
  }
})
