import { state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { startProgram } from './programs.ts'
import { becomes, eventTypes, gate } from './runs.ts'
import { onEverySharedStore, onLocalStores } from './stores.ts'

interface Chat1 {
  messages: string[]
}
interface Chat2 extends Chat1 {
  preferences: { language: string }
}
const chatState1 = state<Chat1>({ version: 1, initial: () => ({ messages: [] }) })
const chatState2 = state<Chat2>({
  version: 2,
  initial: () => ({ messages: [], preferences: { language: 'en' } }),
  migrations: { 1: (v1: Chat1) => ({ ...v1, preferences: { language: 'de' } }) },
})
const say = (text: string) => (draft: Chat1) => {
  draft.messages.push(text)
}
const oldChat = workflow({ name: 'chat', state: chatState1 }, async (ctx, text: string) => {
  ctx.update(say(text))
  await ctx.step('reply', () => {})
  return ctx.state.messages.length
})
const newChat = workflow({ name: 'chat', state: chatState2 }, async (ctx, text: string) => {
  const before = ctx.state.preferences.language
  ctx.update(say(text))
  await ctx.step('reply', () => {})
  return { before, state: ctx.state }
})

onLocalStores('a state with versions', ({ open, openMortal, advance }) => {
  it('of version 1 is read by newer code as version 2, and state_migrated is logged once', async () => {
    const old = await open({ workflows: [oldChat] })
    await old.thread('alice').run(oldChat, 'hello')
    await old.close()

    const hf = await open({ workflows: [newChat] })
    const thread = hf.thread('alice')
    const first = await thread.start(newChat, 'again', { id: 'first' })
    expect(await first.result()).toEqual({
      before: 'de',
      state: { messages: ['hello', 'again'], preferences: { language: 'de' } },
    })
    const second = await thread.start(newChat, 'and again', { id: 'second' })
    await second.result()
    expect((await eventTypes(first)).filter((type) => type === 'state_migrated')).toHaveLength(1)
    expect((await first.events()).find(({ type }) => type === 'state_migrated')?.data).toEqual({ from: 1, to: 2 })
    expect(await eventTypes(second)).not.toContain('state_migrated')
  })

  it('a new thread begins with initial(), which is asked once', async () => {
    let asked = 0
    const chat = workflow(
      {
        name: 'chat',
        state: state({
          version: 1,
          initial: () => {
            asked++
            return { id: asked }
          },
        }),
      },
      async (ctx) => {
        const before = ctx.state.id
        await ctx.step('a', () => {})
        return before
      },
    )
    const hf = await open()
    expect(await hf.thread('t').run(chat)).toBe(await hf.thread('t').run(chat))
    expect((await hf.thread('t').state<{ id: number }>()).id).toBe(1)
  })

  it('stateAt gives the past as it was and, with the definition, migrated in memory only', async () => {
    const old = await open({ workflows: [oldChat] })
    const thread = old.thread('alice')
    await thread.run(oldChat, 'hello')
    const { checkpoint } = (await thread.checkpoints()).at(-1) as { checkpoint: string }
    await old.close()

    const hf = await open({ workflows: [newChat] })
    const before = await hf.thread('alice').checkpoints()
    expect(await hf.thread('alice').stateAt(checkpoint)).toEqual({ messages: ['hello'] })
    expect(await hf.thread('alice').stateAt(checkpoint, chatState2)).toEqual({
      messages: ['hello'],
      preferences: { language: 'de' },
    })
    expect(await hf.thread('alice').state(chatState2)).toEqual({ messages: ['hello'], preferences: { language: 'de' } })
    expect(await hf.thread('alice').state()).toEqual({ messages: ['hello'] })
    expect(await hf.thread('alice').checkpoints()).toEqual(before)
  })

  it('older code that meets newer state does not claim the run; newer code does', async () => {
    const hf = await open({ workflows: [newChat] })
    await hf.thread('alice').run(newChat, 'hello')
    await hf.close()

    const old = await open({ workflows: [oldChat] })
    const run = await old.thread('alice').start(oldChat, 'from old code', { id: 'r' })
    // The old worker is alive and takes a run of a thread that it understands.
    expect(await old.thread('bob').run(oldChat, 'hi')).toBe(1)
    expect(await run.info()).toMatchObject({ status: 'pending' })

    const newer = await open({ workflows: [newChat] })
    expect(await (await newer.runs.get('r')).result()).toMatchObject({ state: { messages: ['hello', 'from old code'] } })
  })

  it('a run in flight is taken over by newer code, which migrates where the tape ends', async () => {
    const inStep = gate()
    const oldSlow = workflow({ name: 'chat', state: chatState1 }, async (ctx, text: string) => {
      ctx.update(say(text))
      await ctx.step('reply', () => {})
      await ctx.step('slow', () => {
        inStep.open()
        return new Promise<void>(() => {})
      })
    })
    const newSlow = workflow({ name: 'chat', state: chatState2 }, async (ctx, text: string) => {
      ctx.update(say(text))
      await ctx.step('reply', () => {})
      await ctx.step('slow', () => {})
      return ctx.state
    })
    const { hf, die } = await openMortal({ workflows: [oldSlow] })
    await hf.thread('alice').start(oldSlow, 'hello', { id: 'r' })
    await inStep.promise
    await die()
    const heir = await open({ workflows: [newSlow] })
    advance(11_000)
    const run = await heir.runs.get('r')
    expect(await run.result()).toEqual({ messages: ['hello'], preferences: { language: 'de' } })
    expect((await eventTypes(run)).filter((type) => type === 'state_migrated')).toHaveLength(2)
    // From nothing to version 1 by the old code, from 1 to 2 by the new.
    expect((await run.events()).filter(({ type }) => type === 'state_migrated').map(({ data }) => data)).toEqual([
      { from: 0, to: 1 },
      { from: 1, to: 2 },
    ])
  })

  it('thread.update edits in the newest version that the registered workflows give', async () => {
    const old = await open({ workflows: [oldChat] })
    await old.thread('alice').run(oldChat, 'hello')
    await old.close()
    const other = workflow({ name: 'other', state: chatState2 }, async () => {})
    const hf = await open({ workflows: [newChat, other] })
    await hf.thread('alice').update<Chat2>((draft) => {
      draft.preferences.language = 'fr'
    })
    expect(await hf.thread('alice').run(newChat, 'again')).toEqual({
      before: 'fr',
      state: { messages: ['hello', 'again'], preferences: { language: 'fr' } },
    })
  })

  it('a state written without a definition is laid over initial()', async () => {
    const hf = await open({ workflows: [newChat] })
    await hf.thread('alice').update((draft) => {
      draft['messages'] = ['by hand']
    })
    expect(await hf.thread('alice').run(newChat, 'hello')).toMatchObject({
      state: { messages: ['by hand', 'hello'], preferences: { language: 'en' } },
    })
  })

  it('a migration that throws pauses the run with a coded error; after a repair it resumes, and nothing is lost', async () => {
    const old = await open({ workflows: [oldChat] })
    await old.thread('alice').run(oldChat, 'hello')
    await old.close()
    let isBroken = true
    const broken = workflow(
      {
        name: 'chat',
        state: state<Chat2>({
          version: 2,
          initial: () => ({ messages: [], preferences: { language: 'en' } }),
          migrations: {
            1: (v1: Chat1) => {
              if (isBroken) throw new Error('no language for alice')
              return { ...v1, preferences: { language: 'it' } }
            },
          },
        }),
      },
      async (ctx) => ctx.state,
    )
    const hf = await open({ workflows: [broken] })
    const run = await hf.thread('alice').start(broken)
    await becomes(run, 'paused')
    const { error, reason } = await run.info()
    expect(reason).toBe('mismatch')
    expect(error).toMatchObject({ code: 'invalid_input' })
    expect(error?.message).toContain('no language for alice')
    // The process is alive and the next ordinary run works.
    expect(await hf.run(workflow('other', () => 'fine'))).toBe('fine')
    isBroken = false
    await run.resume()
    expect(await run.result()).toEqual({ messages: ['hello'], preferences: { language: 'it' } })
  })

  it('a migration that throws pauses a run that is replayed, and throws nothing into its function', async () => {
    let isBroken = true
    const caught: unknown[] = []
    const chat = (definition: typeof chatState2) =>
      workflow({ name: 'chat', state: definition }, async (ctx) => {
        await ctx.step('reply', () => {})
        try {
          ctx.update(say(`with ${ctx.state.messages.length}`))
        } catch (error) {
          caught.push(error)
        }
        await ctx.step('after', () => {})
        return ctx.state
      })
    const broken = state<Chat2>({
      version: 2,
      initial: () => ({ messages: [], preferences: { language: 'en' } }),
      migrations: {
        1: (v1: Chat1) => {
          if (isBroken) throw new Error('no language')
          return { ...v1, preferences: { language: 'it' } }
        },
      },
    })
    const mortal = await openMortal({ workflows: [chat(chatState1 as typeof chatState2)] }, { after: 'step_completed' })
    const client = await open({ worker: false })
    const run = await client.start('chat')
    await mortal.dead
    advance(11_000)
    await open({ workflows: [chat(broken)] })
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch', error: { code: 'invalid_input' } })
    isBroken = false
    await run.resume()
    expect(await run.result()).toEqual({ messages: ['with 0'], preferences: { language: 'it' } })
    expect(caught).toEqual([])
  })

  it('a migration that throws does not keep a run from being rolled back; after a repair it continues from there', async () => {
    let isBroken = true
    const chatState = (version: 1 | 2) =>
      version === 1
        ? (chatState1 as typeof chatState2)
        : state<Chat2>({
            version: 2,
            initial: () => ({ messages: [], preferences: { language: 'en' } }),
            migrations: {
              1: (v1: Chat1) => {
                if (isBroken) throw new Error('no language')
                return { ...v1, preferences: { language: 'it' } }
              },
            },
          })
    const undone: string[] = []
    const chat = (version: 1 | 2) =>
      workflow({ name: 'chat', state: chatState(version) }, async (ctx) => {
        ctx.update(say('kept'))
        await ctx.checkpoint('asked')
        ctx.update(say(`said under ${version}`))
        await ctx.step('reply', () => {}, { undo: () => void undone.push('reply') })
        await ctx.waitFor('go')
        return ctx.state
      })
    const old = await open()
    const begun = await old.start(chat(1))
    await becomes(begun, 'waiting')
    await old.close()

    const hf = await open({ workflows: [chat(2)] })
    const { id } = begun
    const run = await hf.runs.get(id)
    await run.rollback('asked')
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(undone).toEqual(['reply'])
    expect(await hf.thread(id).state()).toEqual({ messages: ['kept'] })
    await run.resume()
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch' })
    isBroken = false
    await run.resume()
    await hf.signal(id, 'go')
    expect(await run.result()).toEqual({ messages: ['kept', 'said under 2'], preferences: { language: 'it' } })
  })

  it('an initial() that throws or gives what can not be stored pauses the run, and the process lives', async () => {
    const hf = await open()
    const codes: unknown[] = []
    for (const [index, initial] of [
      () => {
        throw new Error('no')
      },
      () => ({ f: () => 1 }),
    ].entries()) {
      const wrong = workflow({ name: `wrong-${index}`, state: state<object>({ version: 1, initial }) }, async (ctx) =>
        ctx.step('a', () => 1),
      )
      const run = await hf.start(wrong)
      await becomes(run, 'paused')
      codes.push(((await run.info()).error as { code?: string }).code)
    }
    expect(codes).toEqual(['invalid_input', 'value_not_storable'])
    expect(await hf.run(workflow('other', () => 'fine'))).toBe('fine')
  })

  it('checkMigration tries the migrations on every thread of the owner and changes nothing', async () => {
    const old = await open({ workflows: [oldChat] })
    for (const name of ['alice', 'bob', 'carol']) await old.thread(name).run(oldChat, name)
    await old.as('acme').thread('dave').run(oldChat, 'dave')
    await old.close()

    const hf = await open({ workflows: [newChat] })
    await hf.thread('carol').run(newChat, 'again')
    const strict = state<Chat2>({
      version: 2,
      initial: () => ({ messages: [], preferences: { language: 'en' } }),
      migrations: {
        1: (v1: Chat1) => {
          if (v1.messages.includes('bob')) throw new Error('bob speaks no language')
          return { ...v1, preferences: { language: 'de' } }
        },
      },
    })
    const before = await hf.thread('alice').checkpoints()
    const check = await hf.checkMigration(strict)
    expect(check).toMatchObject({ checked: 2, current: 1 })
    expect(check.failed).toMatchObject([{ threadId: 'bob', fromVersion: 1 }])
    expect(check.failed[0]?.error.message).toContain('bob speaks no language')
    expect(await hf.thread('alice').checkpoints()).toEqual(before)
    expect(await hf.thread('alice').state()).toEqual({ messages: ['alice'] })
    expect(await hf.as('acme').checkMigration(strict)).toMatchObject({ checked: 1, current: 0, failed: [] })
  })

  it('a definition with a gap in its migrations is refused when it is made', () => {
    expect(() => state({ version: 3, initial: () => ({}), migrations: { 1: (v) => v } })).toThrow(
      expect.objectContaining({ code: 'invalid_input', message: expect.stringContaining('from version 2') }),
    )
  })
})

onEverySharedStore('a state written by an older program', (scene) => {
  it('is read by this one as version 2; its run in flight waits for old code and finishes on it', async () => {
    expect(await startProgram('old-chat', scene.url).ended).toBe(0)
    const chat2 = workflow({ name: 'chat', version: 2, state: chatState2 }, newChat.fn)
    const hf = await scene.open({ workflows: [chat2] })
    expect(await hf.thread('alice').state()).toEqual({ messages: ['hello'] })
    expect(await hf.thread('alice').run(chat2, 'again')).toMatchObject({
      state: { messages: ['hello', 'again'], preferences: { language: 'de' } },
    })
    scene.advance(7_200_000)
    await hf.thread('carol').run(chat2, 'a run that shows that the worker has looked')
    const bobs = await hf.runs.get('bobs-run')
    expect(await bobs.info()).toMatchObject({ status: 'waiting', reason: 'timer', version: 1 })

    const chat1 = workflow({ name: 'chat', state: chatState1 }, async (ctx, text: string) => {
      ctx.update(say(text))
      if (text === 'wait') await ctx.sleep(3_600_000)
      return ctx.step('count', () => ctx.state.messages.length)
    })
    hf.register(chat1)
    expect(await bobs.result()).toBe(1)
    expect(await hf.thread('bob').state()).toEqual({ messages: ['wait'] })
  })

  it('stays with the old code as long as newer code has only read it', async () => {
    expect(await startProgram('old-chat', scene.url).ended).toBe(0)
    const hf = await scene.open({ workflows: [newChat] })
    await hf.thread('alice').state(chatState2)
    await hf.close()
    const old = await scene.open({ workflows: [oldChat] })
    expect(await old.thread('alice').run(oldChat, 'still me')).toBe(2)
  })
})
