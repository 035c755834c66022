import { copyStore, NotHappened, workflow } from 'holdfast'
import { createMemoryStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { becomes, codeOfRejection, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

const greet = workflow('greet', async (ctx, name: string) => {
  await ctx.memory.of(name).remember(`${name} was here`)
  await ctx.memory.session.set('last', name)
  return ctx.once('mail', { key: `mail:${name}`, idempotent: true, run: async () => name })
})
const waits = workflow('waits', (ctx) => ctx.ask('sure', { question: 'Sure?' }))

onEveryStore('an owner who is forgotten', (scene) => {
  it('leaves nothing, and others keep what they have', async () => {
    const hf = await scene.open({ workflows: [greet, waits] })
    const [ann, bob] = [hf.as('ann'), hf.as('bob')]
    for (const one of [ann, bob]) {
      await one.run(greet, 'Cid')
      await one.memory.of('ann').profile.merge({ name: 'Ann' })
      await one.thread('gone').run(greet, 'Dan')
      await one.thread('gone').delete()
      await one.schedules.set('daily', { workflow: greet, input: 'Eve', everyMs: 3_600_000 })
      await one.artifacts.save({ name: 'n', type: 'generated_file', content: 'a file' })
      const asking = await one.start(waits, undefined, { id: 'asking' })
      await becomes(asking, 'waiting')
    }
    await ann.thread('asking').tag((await ann.thread('asking').checkpoints())[0]?.checkpoint as string, 'keep')
    const report = await hf.forgetOwner('ann')
    expect(report).toMatchObject({ threads: 4, artifacts: 1, isComplete: true })
    expect(report.memories).toBeGreaterThan(2)
    expect((await ann.runs.list()).items).toEqual([])
    expect(await ann.inbox()).toEqual([])
    expect(await ann.schedules.list()).toEqual([])
    expect(await ann.memory.of('ann').profile.get()).toEqual({})
    expect(await ann.memory.of('Cid').list()).toEqual({ items: [] })
    expect((await ann.artifacts.list()).items).toEqual([])
    expect(await ann.debug.effects()).toEqual({ items: [] })
    expect(await codeOfRejection(ann.runs.get('asking'))).toBe('run_not_found')
    expect(await codeOfRejection(ann.answer('asking', 'sure', true))).toBe('run_not_found')
    expect(await hf.forgetOwner('ann')).toMatchObject({ threads: 0, memories: 0, artifacts: 0, isComplete: true })
    expect((await bob.runs.list()).items).toHaveLength(2)
    expect(await bob.memory.of('ann').profile.get()).toEqual({ name: 'Ann' })
    await bob.answer('asking', 'sure', true, { by: 'bob' })
    expect(await (await bob.runs.get('asking')).result()).toBe(true)
    const [saved] = (await bob.artifacts.list()).items
    expect(await (await bob.artifacts.open(saved?.id ?? '')).text()).toBe('a file')
    const { damaged, threads } = await hf.verify()
    expect([damaged, threads]).toEqual([[], 4])
    // The key is free, and the id: whoever comes again is new.
    expect(await ann.run(greet, 'Cid')).toBe('Cid')
  })

  it('who comes again in another process has artifacts that are copied and collected', async () => {
    let store: Store | undefined
    const here = await scene.openWrapped((given) => {
      store = given
      return given
    })
    await here.as('ann').artifacts.save({ name: 'n', type: 'generated_file', content: 'one' })
    const other = await scene.open({ worker: false })
    await other.forgetOwner('ann')
    const { id } = await here.as('ann').artifacts.save({ name: 'n', type: 'generated_file', content: 'two' })
    expect((await copyStore(store as Store, createMemoryStore())).contents).toBe(1)
    await here.as('ann').artifacts.delete(id)
    scene.advance(25 * 3_600_000)
    expect(await other.gc()).toMatchObject({ artifacts: 1 })
  })

  it('takes a run from the worker that executes it, and what that is sending comes to nothing', async () => {
    const [sending, sent] = [gate(), gate()]
    const pays = workflow('pays', (ctx) =>
      ctx.once('pay', {
        key: 'k',
        run: async () => {
          sending.open()
          await sent.promise
          return 1
        },
        check: () => Promise.reject(new NotHappened()),
      }),
    )
    const hf = await scene.open({ workflows: [pays] })
    const run = await hf.as('ann').start(pays)
    await sending.promise
    await logged(run, 'effect_intended')
    expect(await hf.forgetOwner('ann')).toMatchObject({ threads: 1, isComplete: true })
    sent.open()
    expect(await codeOfRejection(run.result())).toBe('run_not_found')
    expect(await hf.as('ann').debug.effects()).toEqual({ items: [] })
    expect(await hf.forgetOwner('ann')).toMatchObject({ threads: 0, isComplete: true })
    expect((await hf.verify()).damaged).toEqual([])
  })

  it('is refused for the owner without a name, and continues where it was ended early', async () => {
    const hf = await scene.open({ workflows: [greet] })
    expect(await codeOfRejection(hf.forgetOwner(''))).toBe('invalid_input')
    expect(await codeOfRejection(hf.forgetOwner('ann', { force: true } as never))).toBe('invalid_input')
    await hf.as('ann').run(greet, 'Cid')
    await expect(hf.forgetOwner('ann', { signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough')
    expect((await hf.as('ann').runs.list()).items).toHaveLength(1)
    expect(await hf.forgetOwner('ann')).toMatchObject({ threads: 1, isComplete: true })
  })
})
