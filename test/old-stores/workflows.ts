import { type AnyWorkflow, type Context, plan, type RetryOptions, state, workflow } from 'holdfast'

/** What the bodies of the workflows do. In an old store's last hour some hung and some threw. */
export interface World {
  act<T>(runId: string, what: string, result: T): Promise<T>
  /** The code of `mismatched` was changed under a run. */
  readonly hasChangedCode?: boolean
  /** 2: the state of `remembering` has a second version by now, and so has the workflow `versioned`. */
  readonly edition: 1 | 2
}

interface Notes {
  notes: string[]
}

type Untyped = Record<string, unknown>

const hourMs = 3_600_000

/** The text in the library after its n-th change, unlike the one before: with so many changes snapshots are written. */
export const libraryText = (n: number) => String(n % 7).repeat(500)
export const changesAPart = 50

const rarely = { attempts: 3, minMs: hourMs / 6, maxMs: hourMs / 6, jitter: false }

/** The workflows whose runs are in the stores that 09549e1 wrote. That version and the present one both execute them. */
export function makeWorkflows({ act, hasChangedCode = false, edition }: World): readonly AnyWorkflow[] {
  /** A step that acts, and notes it in the state. */
  const note = (ctx: Context<Untyped>, what: string, options: { undo?: boolean; onFailure?: 'pause' } = {}) =>
    ctx.step(
      what,
      async (step) => {
        step.update((draft) => {
          draft['notes'] = [...((draft['notes'] as string[] | undefined) ?? []), what]
        })
        return act(ctx.runId, what, what)
      },
      {
        retry: { attempts: 1 },
        ...(options.undo && { undo: (result: string) => act(ctx.runId, `undo ${result}`, null) }),
        ...(options.onFailure !== undefined && { onFailure: options.onFailure }),
      },
    )

  const kid = workflow({ name: 'kid', queue: 'kids' }, async (ctx, input: string) => {
    const word = await ctx.waitFor<string>('grow')
    await note(ctx, 'grown')
    return `${input} ${word}`
  })

  return [
    kid,
    workflow('noting', async (ctx) => {
      await note(ctx, 'note')
      return 'noted'
    }),
    workflow('sleeping', async (ctx) => {
      await note(ctx, 'before')
      await ctx.sleep(hourMs)
      await note(ctx, 'after')
      return 'slept'
    }),
    workflow('signalled', async (ctx) => {
      await note(ctx, 'before')
      const word = await ctx.waitFor<string>('go')
      await note(ctx, 'after')
      return word
    }),
    workflow('racing', async (ctx) => {
      await note(ctx, 'before')
      return Promise.race([ctx.waitFor<string>('stop'), ctx.sleep(10 * hourMs).then(() => 'late')])
    }),
    workflow('asking', async (ctx) => {
      await note(ctx, 'before')
      const answers = await Promise.all([
        ctx.ask<string>('first', { question: 'first?' }),
        ctx.scope('desk', (desk) => desk.ask<string>('second', { question: { text: 'second?' }, to: 'desk' })),
      ])
      await note(ctx, 'after')
      return answers.join(' ')
    }),
    // 09549e1 gave the next `b` to the wait that had lost.
    workflow('losing', async (ctx) => {
      await Promise.race([ctx.waitFor('a'), ctx.waitFor('b')])
      await note(ctx, 'before')
      return ctx.waitFor<string>('b')
    }),
    workflow('asking_in_section', async (ctx) => {
      const said = await section(ctx, 'part', (part) => part.ask<string>('third', { question: 'third?' }))
      await note(ctx, 'after')
      return said
    }),
    workflow('asking_twice', async (ctx) => {
      const answers = await Promise.all(['left?', 'right?'].map((question) => ctx.ask<string>('same', { question })))
      await note(ctx, 'after')
      return answers.sort().join(' ')
    }),
    workflow('asking_in_time', async (ctx) =>
      ctx.ask<string>('quick', { question: 'quick?', timeoutMs: hourMs, default: 'nobody' }),
    ),
    workflow('paying', async (ctx, input: { key?: string; kind?: 'idempotent' | 'check' } = {}) => {
      await note(ctx, 'before')
      const { key, kind } = input
      const paid = await ctx.once('pay', {
        ...(key !== undefined && { key }),
        ...(kind === 'idempotent' && { idempotent: true }),
        ...(kind === 'check' && {
          check: async (given: string) => ({ happened: true, result: await act(ctx.runId, `check ${given}`, 'paid') }),
        }),
        run: (given) => act(ctx.runId, `pay ${given}`, 'paid'),
      })
      await note(ctx, 'after')
      return paid
    }),
    workflow('calling', async (ctx, input: { detached?: boolean } = {}) => {
      await note(ctx, 'before')
      if (input.detached) return (await ctx.call(kid, 'free', { detached: true })).id
      const grown = await ctx.call(kid, 'bound')
      await note(ctx, 'after')
      return grown
    }),
    // After a rollback, in a second life, on a later tape: the names of effects and children on record are those of 09549e1.
    workflow('acting_later', async (ctx, { kind, tapes = 0 }: { kind: 'pay' | 'call'; tapes?: number }) => {
      await note(ctx, 'before')
      if (tapes > 0) return ctx.continueAs({ kind, tapes: tapes - 1 })
      await ctx.checkpoint('middle')
      await ctx.waitFor('go')
      if (kind === 'call') return ctx.call(kid, 'late')
      return ctx.once('pay', { idempotent: true, run: (given) => act(ctx.runId, `pay ${given}`, 'paid') })
    }),
    workflow('updating', async (ctx) => {
      add(ctx, 'begun')
      await note(ctx, 'before')
      add(ctx, 'between')
      await note(ctx, 'try')
      return 'tried'
    }),
    workflow('catching', async (ctx) => {
      const tried = await note(ctx, 'try').catch((error: Error) => error.message)
      add(ctx, tried)
      await ctx.waitFor('go')
      await note(ctx, 'after')
      return tried
    }),
    workflow('trying', async (ctx) => {
      await note(ctx, 'before')
      await ctx.step('try', () => act(ctx.runId, 'try', 'tried'), { retry: rarely })
      return 'tried'
    }),
    workflow('trying_section', async (ctx) => {
      await section(
        ctx,
        'part',
        async (part) => {
          await note(part, 'kept')
          await note(part, 'try')
        },
        { retry: rarely },
      )
      await note(ctx, 'after')
      return 'tried'
    }),
    workflow('updating_section', async (ctx) => {
      add(ctx, 'begun')
      await section(
        ctx,
        'part',
        async (part) => {
          add(part, 'inside')
          await note(part, 'kept')
          await note(part, 'try')
        },
        { retry: rarely },
      )
      add(ctx, 'ended')
      return 'tried'
    }),
    // Its first attempt has failed, and its second was at work when the process was killed.
    workflow('second_attempt', async (ctx) => {
      await section(
        ctx,
        'part',
        async (part) => {
          add(part, 'inside')
          const kept = await note(part, 'kept')
          await part.step('try', () => act(ctx.runId, 'try', kept), { retry: { attempts: 1 } })
          await note(part, 'hang')
        },
        { retry: { attempts: 3, minMs: 0, maxMs: 0 } },
      )
      return 'tried'
    }),
    workflow('inside_section', async (ctx) => {
      const part = await section(ctx, 'part', async (inner) => {
        await note(inner, 'first', { undo: true })
        return note(inner, 'second')
      })
      await note(ctx, 'after')
      return part
    }),
    workflow('undoing_section', async (ctx) => {
      await note(ctx, 'outer', { undo: true })
      await section(ctx, 'part', (inner) => note(inner, 'inner', { undo: true }), {
        undo: (result) => act(ctx.runId, `undo part ${String(result)}`, null),
      })
      return ctx.waitFor<string>('go')
    }),
    workflow('mapping', async (ctx) =>
      ctx.map('item', [0, 1, 2], (item) => act(ctx.runId, `item ${item}`, item * 10), { retry: { attempts: 1 } }),
    ),
    workflow('continuing', async (ctx, tape: number) => {
      await note(ctx, `visit ${tape}`, { undo: true })
      if (tape < 3) return ctx.continueAs(tape + 1)
      const word = await ctx.waitFor<string>('go')
      await note(ctx, 'after')
      return word
    }),
    workflow({ name: 'budgeted', budget: { steps: 1 } }, async (ctx) => {
      await note(ctx, 'before')
      await note(ctx, 'after')
      return 'within'
    }),
    workflow('pausing', async (ctx) => {
      await note(ctx, 'before')
      await note(ctx, 'try', { onFailure: 'pause' })
      return 'tried'
    }),
    workflow('mismatched', async (ctx) => {
      await note(ctx, hasChangedCode ? 'other' : 'before', { undo: true })
      const word = await ctx.waitFor<string>('go')
      await note(ctx, 'after')
      return word
    }),
    workflow('poison', async (ctx) => {
      await act(ctx.runId, 'swallow', null)
      await note(ctx, 'after')
      return 'survived'
    }),
    workflow('undoable', async (ctx) => {
      await note(ctx, 'one', { undo: true })
      await ctx.checkpoint('middle')
      await ctx.once('two', {
        idempotent: true,
        run: () => act(ctx.runId, 'two', 'two'),
        undo: (result) => act(ctx.runId, `undo ${result}`, null),
      })
      await note(ctx, 'three', { undo: true })
      const word = await ctx.waitFor<string>('go')
      await note(ctx, 'after')
      return word
    }),
    workflow('failing', async (ctx) => {
      await note(ctx, 'before')
      await note(ctx, 'try')
      return 'tried'
    }),
    workflow({ name: 'undoing_failure', undoOnFailure: true }, async (ctx) => {
      await note(ctx, 'before', { undo: true })
      await note(ctx, 'try')
      return 'tried'
    }),
    workflow('streaming', async (ctx) => {
      await ctx.step('talk', async ({ stream }) => {
        for (const word of ['one', 'two']) await stream('words').write(word)
        return act(ctx.runId, 'talk', null)
      })
      await ctx.stream('words').write('between')
      await ctx.step('more', async ({ stream }) => {
        await stream('words').write('three')
        return act(ctx.runId, 'more', null)
      })
      return 'said'
    }),
    workflow('beginning', async (ctx) => {
      await note(ctx, 'before')
      const loop = await ctx.begin<string>('loop')
      return loop.recorded ?? loop.complete(await act(ctx.runId, 'loop', 'looped'))
    }),
    // Redis refuses it every time.
    workflow('transacting', async (ctx) => {
      const read = ctx.transaction('read', async (tx) => {
        await act(ctx.runId, 'read', null)
        return tx.query('SELECT 1 AS one')
      })
      await read.catch(() => 'refused')
      return ctx.waitFor<string>('go')
    }),
    workflow('valued', async (ctx) => {
      const values = [ctx.now(), ctx.random(), ctx.uuid()]
      const seen = await ctx.step('see', () => values)
      await ctx.waitFor('go')
      return JSON.stringify(values) === JSON.stringify(seen)
    }),
    workflow({ name: 'limited', timeoutMs: 2 * hourMs }, async (ctx) => {
      await note(ctx, 'before')
      return ctx.waitFor('never')
    }),
    ...(edition === 1 ? [1] : [1, 2]).map((version) =>
      workflow({ name: 'versioned', version }, async (ctx) => {
        const word = await ctx.waitFor<string>('go')
        await note(ctx, `after in ${version}`)
        return `${word} in ${version}`
      }),
    ),
    workflow(
      {
        name: 'remembering',
        state: state<Notes & { loud?: boolean }>({
          version: edition,
          initial: () => ({ notes: [] }),
          ...(edition === 2 && { migrations: { 1: (old) => ({ ...(old as Notes), loud: true }) } }),
        }),
      },
      async (ctx, text: string) => {
        ctx.update((draft) => {
          draft.notes.push(text)
        })
        const word = await ctx.waitFor<string>('go')
        ctx.update((draft) => {
          draft.notes.push(word)
        })
        return ctx.state.notes.length
      },
    ),
    workflow('growing', async (ctx) => {
      for (let part = 1; part <= 4; part++) {
        for (let n = (part - 1) * changesAPart + 1; n <= part * changesAPart; n++) {
          ctx.update((draft) => {
            draft['text'] = libraryText(n)
          })
          await ctx.step('grow', () => act(ctx.runId, `grow ${n}`, n))
        }
        await ctx.checkpoint(`part ${part}`)
      }
    }),
    plan<Record<string, unknown>>('undoing_plan')
      .step('gather', async (_, ctx) => ({ gathered: await note(ctx, 'fetch') }), {
        undo: (left) => act('undoing-plan', `undo gather ${String(left['gathered'])}`, null),
      })
      .step('wait', async (_, ctx) => ({ waited: await ctx.waitFor('go') })),
    plan('planned')
      .step('gather', async (_, ctx) => ({ gathered: await note(ctx, 'fetch') }))
      .parallel([
        ['left', async (_, ctx) => ({ left: await note(ctx, 'walk') })],
        ['right', async (_, ctx) => ({ right: await note(ctx, 'climb') }), { retry: rarely }],
      ])
      .step('wrap', async (known, ctx) => ({ wrapped: `${await note(ctx, 'wrap')} ${String(known['gathered'])}` })),
  ]
}

function add(ctx: Context<Untyped>, text: string): void {
  ctx.update((draft) => {
    draft['notes'] = [...((draft['notes'] as string[] | undefined) ?? []), text]
  })
}

/** What is `ctx.section` now was `ctx.scope` with options in 09549e1; both write the same log. */
function section<T>(
  ctx: Context<Untyped>,
  name: string,
  fn: (ctx: Context<Untyped>) => Promise<T>,
  options: { readonly retry?: RetryOptions; readonly undo?: (result: T) => unknown } = {},
): Promise<T> {
  type Recorded = (name: string, fn: (ctx: Context<Untyped>) => Promise<T>, options: object) => Promise<T>
  const calls = ctx as unknown as { readonly section?: Recorded; readonly scope: Recorded }
  return calls.section === undefined ? calls.scope(name, fn, options) : calls.section(name, fn, options)
}
