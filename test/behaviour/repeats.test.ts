import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { copyStore, type Holdfast, type OpenOptions, open as openHoldfast, state, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { LogQuery, LogStretch, Store } from '../../src/store/store.ts'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

const conversation = state({ version: 1, initial: () => ({ messages: [] as { from: string; text: string }[], reads: 0 }) })

/** What is said is long enough to be kept once: as the result of a step that adds it to the state, and as the output. */
function answerTo(text: string): string {
  return `You said "${text}" \\ ${'and so on, '.repeat(40)}`
}

const undone: string[] = []

const chat = workflow(
  {
    name: 'chat',
    state: conversation,
    undos: { takeBack: (result: { text: string }) => void undone.push(result.text) },
  },
  async (ctx, text: string) => {
    const { text: first } = await ctx.step(
      'reply',
      (step) => {
        const reply = { text: answerTo(text), tokens: 12 }
        step.update((draft) => void draft.messages.push({ from: 'agent', text: reply.text }))
        return reply
      },
      { undo: 'takeBack' },
    )
    if (text === 'wait') await ctx.waitFor('go')
    const last = `${first} (${ctx.state.messages.length})`
    ctx.update((draft) => void draft.messages.push({ from: 'agent', text: last }))
    return last
  },
)

/** A client that tells the store under it, as it was read from. */
async function openBoth(
  openWrapped: (wrap: (store: Store) => Store, options?: OpenOptions) => Promise<Holdfast>,
  wrap: (store: Store) => Store = (store) => store,
): Promise<{ hf: Holdfast; store: Store }> {
  let found: Store | undefined
  const hf = await openWrapped(
    (store) => {
      found = store
      return wrap(store)
    },
    { workflows: [chat] },
  )
  return { hf, store: found as Store }
}

async function keptResults(store: Store, threadId: string): Promise<string[]> {
  const records = await store.readLog({ owner: '', threadId, types: ['step_completed', 'run_completed'] })
  return records.map(({ payload }) => String(payload))
}

onEveryStore('what a result says that the state says, too', ({ open, openMortal, openWrapped, advance }) => {
  const reply = answerTo('hello')
  const output = `${reply} (1)`

  it('is kept once, and every reader gets it whole', async () => {
    const { hf, store } = await openBoth(openWrapped)
    const thread = hf.thread('t')
    const run = await thread.start(chat, 'hello', { id: 'r' })
    expect(await run.result()).toBe(output)
    for (const payload of await keptResults(store, 't')) expect(payload.length).toBeLessThan(250)

    const other = await open({ worker: false })
    const there = await other.runs.get('r')
    // Asked for twice: the second time, what belongs to the end is read with it.
    for (let times = 0; times < 2; times++) expect(await there.result()).toBe(output)
    expect((await there.info()).output).toBe(output)
    const results = (await there.events()).flatMap(({ type, data }) =>
      type.endsWith('_completed') ? [data?.['result'] ?? data?.['output']] : [],
    )
    expect(results).toEqual([{ text: reply, tokens: 12 }, output])
    const messages = [reply, output].map((text) => ({ from: 'agent', text }))
    expect(await other.thread('t').state()).toEqual({ messages, reads: 0 })
    const { checkpoint } = (await other.thread('t').checkpoints()).find(({ step }) => step === 'reply') as { checkpoint: string }
    expect(await other.thread('t').stateAt(checkpoint)).toEqual({ messages: messages.slice(0, 1), reads: 0 })
    const steps = await other.debug.replay('r')
    expect(steps.find(({ name }) => name === 'reply')?.output).toEqual({ text: reply, tokens: 12 })
    const { last } = await other.debug.blame(
      (await other.thread('t').checkpoints()).at(-1)?.checkpoint as string,
      'messages.0.text',
    )
    expect(last?.step).toBe('reply')
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('is whole where it goes on with another character of two units', async () => {
    const said = 'and so on, '.repeat(40)
    const smile = workflow({ name: 'smile', state: conversation }, async (ctx) =>
      ctx.step('reply', (step) => {
        step.update((draft) => void draft.messages.push({ from: 'agent', text: `${said}😁` }))
        return { from: 'agent', text: `${said}😀` }
      }),
    )
    const hf = await open({ workflows: [smile] })
    await hf.start(smile, undefined, { id: 'r', threadId: 't' })
    const there = await (await open({ worker: false })).runs.get('r')
    await becomes(there, 'completed')
    const [completed] = (await there.events()).filter(({ type }) => type === 'step_completed')
    expect(completed?.data?.['result']).toEqual({ from: 'agent', text: `${said}😀` })
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('is there for the next holder of a run, for another tape, and for undos', async () => {
    const mortal = await openMortal({ workflows: [chat] }, { after: 'step_completed' })
    await mortal.hf.start(chat, 'wait', { id: 'r', threadId: 't' })
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [chat] })
    const run = await hf.runs.get('r')
    await becomes(run, 'waiting')
    const { checkpoint } = (await hf.thread('t').checkpoints()).find(({ step }) => step === 'reply') as { checkpoint: string }
    await run.rollback(checkpoint)
    await run.resume()
    await hf.signal('r', 'go')
    expect(await run.result()).toBe(`${answerTo('wait')} (1)`)
    undone.length = 0
    const second = await hf.start(chat, 'wait', { id: 's' })
    await becomes(second, 'waiting')
    await second.cancel()
    await becomes(second, 'cancelled')
    expect(undone).toEqual([answerTo('wait')])
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('is in forks, rewound threads, bundles and copied stores', async () => {
    const { hf, store } = await openBoth(openWrapped)
    await hf.thread('t').run(chat, 'hello')
    const run = await hf.thread('t').start(chat, 'wait', { id: 'r' })
    await becomes(run, 'waiting')
    const checkpoints = await hf.thread('t').checkpoints()
    const waiting = checkpoints.findLast(({ step }) => step === 'reply')?.checkpoint as string

    const copy = await hf.thread('t').fork(waiting, { threadId: 'copy' })
    for (const payload of await keptResults(store, 'copy')) expect(payload).toContain('and so on, and so on')
    expect((await hf.verify()).damaged).toEqual([])
    await run.cancel()
    await becomes(run, 'cancelled')
    await hf.thread('t').rewind(checkpoints[0]?.checkpoint as string)
    expect(await hf.thread('t').run(chat, 'again')).toBe(`${answerTo('again')} (1)`)
    const [bundle, before] = [await hf.debug.export('t'), await run.events()]
    await hf.thread('t').delete()
    const resumed = await copy.resume()
    await hf.signal(resumed.id, 'go')
    expect(await resumed.result()).toBe(`${answerTo('wait')} (3)`)

    const imported = await hf.as('other').debug.import(JSON.parse(JSON.stringify(bundle)))
    expect(await (await hf.as('other').runs.get('r')).events()).toEqual(before)
    expect(await imported.run(chat, 'more')).toBe(`${answerTo('more')} (3)`)
    expect((await hf.verify()).damaged).toEqual([])
    await hf.close()

    const folder = mkdtempSync(join(tmpdir(), 'holdfast-repeats-'))
    const target = `sqlite:${join(folder, 'copy.db')}`
    await copyStore(store, target)
    const there = await openHoldfast(target, { workflows: [chat], logger: false })
    expect(await (await there.runs.get(resumed.id)).result()).toBe(`${answerTo('wait')} (3)`)
    expect(await (await there.as('other').runs.get('r')).events()).toEqual(before)
    expect((await there.verify()).damaged).toEqual([])
    await there.close()
    rmSync(folder, { recursive: true, force: true })
  })

  it('is damage where the change of the state that says it is damaged or gone, never other data', async () => {
    let alter = (patch: string | null): string | null => patch
    const altered = ({ ...stretch }: LogStretch): LogStretch =>
      'damage' in stretch
        ? stretch
        : { records: stretch.records.map((record) => ({ ...record, patch: alter(record.patch as string | null) })) }
    const { hf } = await openBoth(openWrapped, (store) => ({
      ...wrapStore(store, {}),
      readLog: async (query: LogQuery) => (altered({ records: await store.readLog(query) }) as { records: [] }).records,
      readLogs: async (queries: readonly LogQuery[]) => (await store.readLogs(queries)).map(altered),
    }))
    const run = await hf.start(chat, 'hello', { id: 'r' })
    expect(await run.result()).toBe(output)
    for (alter of [
      () => null,
      (patch: string | null) => patch?.replace('so on', 'so no') ?? null,
      (patch: string | null) => patch && ` ${patch}`,
    ]) {
      expect(await codeOfRejection(run.result())).toBe('corrupt_record')
      expect(await codeOfRejection(run.events())).toBe('corrupt_record')
      expect((await run.info()).error).toMatchObject({ code: 'corrupt_record' })
      expect((await hf.verify()).damaged.map(({ what }) => what)).toContain('record')
    }
    alter = (patch) => patch
    expect(await run.result()).toBe(output)
  })
})
