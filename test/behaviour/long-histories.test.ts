import { type Holdfast, state, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { createCodec } from '../../src/model/codec.ts'
import type { LogQuery } from '../../src/store/store.ts'
import { onEveryStore } from './stores.ts'

const notes = state({ version: 1, initial: () => ({ messages: [] as string[], turn: 0 }) })

/** Eight events a turn. */
const chat = workflow({ name: 'chat', state: notes }, async (ctx, turns: number) => {
  for (let turn = 0; turn < turns; turn++) {
    await ctx.step('think', (step) => {
      step.usage({ model: 'm', inputTokens: 10, outputTokens: 5 })
      step.update((draft) => {
        draft.turn += 1
        draft.messages.push(`${draft.turn} ${'word '.repeat(30)}`)
        if (draft.messages.length > 40) draft.messages.shift()
      })
    })
    await ctx.step('act', () => 'x'.repeat(50))
  }
})

onEveryStore('a long history', ({ open, openWrapped }) => {
  it('is forked for what the state and the tape weigh', async () => {
    const hf = await open({ workflows: [chat] })
    const thread = hf.thread('long')
    for (let n = 0; n < 12; n++) await thread.run(chat, 10)
    const run = await thread.start(chat, 10)
    await run.result()
    const events = await run.events()
    const inside = events.filter(({ type }) => type === 'step_completed').at(-5)?.seq as number
    const tapeFrom = events.find(({ type }) => type === 'run_queued')?.seq as number
    const bytesOf = async (id: string, from: number, to: number) =>
      (await hf.thread(id).checkpoints()).filter(({ seq }) => seq >= from && seq <= to).reduce((sum, { bytes }) => sum + bytes, 0)
    for (const [at, tape] of [
      [tapeFrom - 1, 0],
      [inside, await bytesOf('long', tapeFrom, inside)],
    ] as const) {
      const begin = createCodec().encode(await thread.stateAt(`long@${tapeFrom - 1}`))
      const fork = await thread.fork(`long@${at}`)
      const taken = await bytesOf(fork.id, 0, Number.POSITIVE_INFINITY)
      expect(taken).toBeGreaterThan(begin.length)
      expect(taken).toBeLessThanOrEqual(1.3 * (begin.length + tape))
    }
  })

  it('is looked at, forked and blamed in as many reads as a short one, and none from its beginning', async () => {
    const seen = { reads: 0, positions: 0 }
    const before = (act: string, _: number, [query]: readonly unknown[]) => {
      // The worker claims and renews meanwhile.
      if (!/^(?:read|list|scan)/.test(act)) return
      seen.reads += 1
      // Changes are read back to the last snapshot, which these small states do not have. Writes of session memory are looked for in the whole
      // log, by the store.
      const { afterSeq = 0, toSeq = 1e9, patchesOnly, types } = (query ?? {}) as LogQuery
      const isOfSession = types?.includes('memory_written') === true
      if (act === 'readLog' && patchesOnly !== true && !isOfSession) seen.positions += toSeq - afterSeq
    }
    const hf = await openWrapped((store) => wrapStore(store, { before }), { workflows: [chat] })
    await hf.thread('short').run(chat, 24)
    for (let n = 0; n < 30; n++) await hf.thread('long').run(chat, n < 29 ? 8 : 24)
    for (const [what, act] of Object.entries(acts)) {
      const found = { short: { ...seen }, long: { ...seen } }
      for (const id of ['short', 'long'] as const) {
        const at = await nearEnd(hf, id)
        Object.assign(seen, { reads: 0, positions: 0 })
        await act(hf, id, at)
        found[id] = { ...seen }
      }
      expect(found.long.reads, what).toBe(found.short.reads)
      expect(found.long.positions, what).toBeLessThanOrEqual(found.short.positions + 300)
    }
  })
})

const acts: Record<string, (hf: Holdfast, id: string, at: string) => Promise<unknown>> = {
  'the first page of the timeline': (hf, id) => hf.debug.timeline(id, { limit: 10 }),
  'a fork': (hf, id, at) => hf.thread(id).fork(at),
  'a state': (hf, id, at) => hf.thread(id).stateAt(at),
  'the last writers': (hf, _, at) => hf.debug.blame(at, 'turn'),
}

/** A checkpoint inside the last run. */
async function nearEnd(hf: Holdfast, id: string): Promise<string> {
  return (await hf.thread(id).checkpoints()).at(-4)?.checkpoint as string
}
