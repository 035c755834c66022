import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { open, state, workflow } from 'holdfast'
import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import { bundleProgram } from './bed/program-bundle.ts'
import { openStoreAt } from './bed/store-address.ts'
import type { Order } from './history-program.ts'
import { violationsInDump } from './rules/store-contents.ts'

const texts = state({ version: 1, initial: () => ({ texts: [] as string[], bulk: '' }) })

const work = workflow({ name: 'work', state: texts }, async (ctx) => {
  const first = await ctx.step('first', (step) => {
    step.update((draft) => {
      draft.texts.push('first')
      // So that the fork is written in several parts where a store does that.
      draft.bulk = Array.from({ length: 60_000 }, (_, n) => n.toString(36)).join(' ')
    })
    return 'first'
  })
  await ctx.memory.session.set('mood', 'calm')
  await ctx.checkpoint('begun')
  await ctx.waitFor('go')
  await ctx.step('second', (step) => step.update((draft) => void draft.texts.push(`second after ${first}`)))
  return ctx.state.texts
})

const add = workflow({ name: 'add', state: texts }, async (ctx, text: string) => {
  await ctx.step('add', async (step) => {
    step.update((draft) => void draft.texts.push(text))
    await step.memory.session.set('last', text)
  })
})

/** How each is killed: around the one write, and in the middle of it. */
const deaths: readonly Order['dies'][] = ['before', 'after', 0, 2, 5, 12, 30]

onEveryDurableStore((on) => {
  test('a rewind or a fork that is killed at any moment has happened whole or not at all, and the thread is as it was', {
    timeout: patience(240_000),
  }, async () => {
    const environment = await on.bed.setUp()
    const address = await environment.store.addressFor(1)
    const program = await bundleProgram(join(import.meta.dirname, 'history-program.ts'))
    const store = await openStoreAt(address, () => 0)
    const hf = await open(store, { workflows: [work, add] })
    const outcomes = { happened: 0, not: 0 }
    try {
      const run = await hf.start(work, undefined, { id: 'original' })
      await expect.poll(async () => (await run.info()).status, { timeout: patience(15_000) }).toBe('waiting')
      const before = await hf.debug.export('original')
      for (const [index, dies] of deaths.entries()) {
        for (const act of ['fork', 'what_if'] as const) {
          const fork = `${act}-${index}`
          const order: Order = { store: address, threadId: 'original', checkpoint: 'begun', act, fork, dies }
          on.bed.killCount += await killed(program, order)
          const { checkpoint, forkedFrom, runs, session } = await settled(async () => ({
            ...(await hf.thread(fork).info()),
            runs: (await hf.runs.list({ threadId: fork })).items.map(({ id }) => id),
            session: (await hf.memory.session.of(fork).list()).map(({ key, value }) => `${key} ${value}`),
          }))
          if (checkpoint === null) {
            outcomes.not++
            expect([fork, dies, runs, session]).toEqual([fork, dies, [], []])
            continue
          }
          expect(dies).not.toBe('before')
          expect(forkedFrom).toMatch(/^original@/)
          outcomes.happened++
          expect([fork, session]).toEqual([fork, act === 'fork' ? ['mood calm'] : []])
          const copy = await hf.runs.get(runs[0] as string)
          await copy.resume()
          await hf.signal(copy.id, 'go')
          expect(await copy.result()).toEqual(
            act === 'fork' ? ['first', 'second after first'] : ['edited', 'second after another'],
          )
        }
      }
      expect((await hf.debug.export('original')).sha256).toBe(before.sha256)
      await hf.signal('original', 'go')
      expect(await run.result()).toEqual(['first', 'second after first'])

      const thread = hf.thread('rewound')
      await thread.run(add, 'one')
      const one = (await thread.info()).checkpoint as string
      for (const dies of ['before', 'after', 0, 2, 5] as const) {
        await thread.run(add, 'two')
        const { checkpoint } = await thread.info()
        const order: Order = { store: address, threadId: 'rewound', checkpoint: one, act: 'rewind', fork: '', dies }
        on.bed.killCount += await killed(program, order)
        const look = async () => ({
          checkpoint: (await thread.info()).checkpoint,
          texts: (await thread.state<{ texts: string[] }>()).texts,
          last: await hf.memory.session.of('rewound').get('last'),
        })
        const now = await settled(look)
        const hasHappened = now.checkpoint !== checkpoint
        if (dies === 'before') expect(hasHappened).toBe(false)
        if (dies === 'after') expect(hasHappened).toBe(true)
        expect(now).toMatchObject(hasHappened ? { texts: ['one'], last: 'one' } : { texts: ['one', 'two'], last: 'two' })
        await thread.rewind(one)
        expect(await look()).toMatchObject({ texts: ['one'], last: 'one' })
      }
      expect(violationsInDump(await environment.store.dump())).toEqual([])
      expect(outcomes.happened).toBeGreaterThan(0)
      expect(outcomes.not).toBeGreaterThan(0)
    } finally {
      await hf.close()
      await store.close()
      await on.bed.tearDown(environment)
    }
  })
})

/** What is seen twice in a row: the write of a killed process may still be on its way, and take effect between two reads. */
async function settled<T>(look: () => Promise<T>): Promise<T> {
  for (let seen = await look(); ; ) {
    const again = await look()
    if (isDeepStrictEqual(again, seen)) return seen
    seen = again
  }
}

/** Runs the program to its death. 0 if it was done before it was to die. */
async function killed(program: string, order: Order): Promise<0 | 1> {
  const child = spawn(process.execPath, [program, JSON.stringify(order)], {
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
  if (signal === 'SIGKILL') return 1
  throw new Error(`The process ended with ${code ?? signal} instead of being killed: ${JSON.stringify(order)}`)
}
