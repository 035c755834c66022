import { type SqlTransaction, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, eventTypes, failureOf, gate } from './runs.ts'
import { onEverySqlStore, onEveryStoreWithoutSql } from './stores.ts'

onEverySqlStore('ctx.transaction', (scene) => {
  const { open, openMortal, advance, sql, parameter } = scene
  /** The user's own table, in the same database. */
  const setUp = async () => {
    await sql('CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL)')
    await sql(`INSERT INTO accounts VALUES ('alice', 100), ('bob', 0)`)
  }
  const balances = async () =>
    Object.fromEntries((await sql('SELECT name, balance FROM accounts')).map(({ name, balance }) => [name, balance]))
  const move = async (tx: SqlTransaction, amount: number) => {
    const [first, second] = [parameter(1), parameter(2)]
    await tx.query(`UPDATE accounts SET balance = balance - ${first} WHERE name = ${second}`, [amount, 'alice'])
    await tx.query(`UPDATE accounts SET balance = balance + ${first} WHERE name = ${second}`, [amount, 'bob'])
    const [row] = await tx.query<{ balance: number }>(`SELECT balance FROM accounts WHERE name = ${first}`, ['alice'])
    return row?.balance
  }

  it('writes the user’s tables and the checkpoint together, and gives its result', async () => {
    const hf = await open()
    await setUp()
    const pay = workflow('pay', async (ctx) => {
      const left = await ctx.transaction('move', (tx) => move(tx, 30))
      return { left, after: await ctx.step('after', () => 'went on') }
    })
    const run = await hf.start(pay)
    expect(await run.result()).toEqual({ left: 70, after: 'went on' })
    expect(await balances()).toEqual({ alice: 70, bob: 30 })
    expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_completed', 'step_started', 'step_completed'])
    expect((await run.info()).completedSteps).toEqual(['move', 'after'])
  })

  it('that throws leaves nothing behind; its failure is final, and retry() executes it again', async () => {
    const hf = await open()
    await setUp()
    let isDown = true
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', async (tx) => {
        const left = await move(tx, 30)
        if (isDown) throw new Error('insufficient trust')
        return left
      }),
    )
    const run = await hf.start(pay)
    expect((await failureOf(run)).message).toBe('insufficient trust')
    expect(await balances()).toEqual({ alice: 100, bob: 0 })
    expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_failed'])
    isDown = false
    await run.retry()
    expect(await run.result()).toBe(70)
    expect(await balances()).toEqual({ alice: 70, bob: 30 })
  })

  it('does not change the order of results beside it: they reach the function in the order of the log, and a race has the same winner again', async () => {
    const hf = await open()
    await setUp()
    const orders: string[][] = []
    const pay = workflow('pay', async (ctx) => {
      const order: string[] = []
      orders.push(order)
      const [isInside, isHeld, isOver] = [gate(), gate(), gate()]
      const step = async (name: string, body: () => Promise<void>) => {
        await ctx.step(name, body)
        order.push(name)
        return name
      }
      const held = step('held', async () => {
        await isInside.promise
        // By then its result waits for the end of the transaction.
        setImmediate(isHeld.open)
      })
      const behind = step('behind', () => isOver.promise)
      const inside = async (tx: SqlTransaction) => {
        isInside.open()
        await isHeld.promise
        return move(tx, 30)
      }
      const moved = ctx.transaction('move', inside).then(() => isOver.open())
      const first = await Promise.race([behind, held])
      await Promise.all([behind, held, moved])
      await ctx.waitFor('go')
      return first
    })
    const run = await hf.start(pay)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'go')
    expect(await run.result()).toBe('held')
    const completed = (await run.events()).filter(({ type }) => type === 'step_completed').map(({ step }) => step)
    expect(completed).toEqual(['move', 'held', 'behind'])
    expect(orders.map((order) => order.join(' '))).toEqual(orders.map(() => 'held behind'))
    expect(orders.length).toBeGreaterThan(1)
  })

  it.each(['returns', 'continues'] as const)(
    'under way when the function %s keeps back nothing that came before',
    async (how) => {
      const begun = gate()
      const taken = gate()
      const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
      const work = workflow({ name: 'work', state: list }, async (ctx, isNext: boolean): Promise<unknown> => {
        if (isNext) return ctx.state.list
        // Nobody waits for it.
        const slow = ctx.transaction('slow', async (tx) => {
          await tx.query('SELECT 1')
          begun.open()
          await taken.promise
        })
        slow.catch(() => {})
        await begun.promise
        ctx.update((draft) => void draft.list.push('kept'))
        const beside = gate()
        void ctx.step('beside', () => beside.open()).catch(() => {})
        await beside.promise
        await new Promise((resolve) => setImmediate(resolve))
        setTimeout(() => taken.open(), 20)
        return how === 'continues' ? ctx.continueAs(true) : null
      })
      const hf = await open({ workflows: [work], logger: false })
      const run = await hf.start(work, false, { threadId: 't' })
      expect(await run.result()).toEqual(how === 'continues' ? ['kept'] : null)
      expect(await hf.thread('t').state()).toEqual({ list: ['kept'] })
      expect(await (await hf.start(work, true, { threadId: 't' })).result()).toEqual(['kept'])
      expect((await run.info()).completedSteps).toEqual(how === 'continues' ? [] : ['slow', 'beside'])
    },
  )

  it('whose process dies after it takes effect exactly once', async () => {
    const { hf, dead } = await openMortal({}, { before: 'run_completed' })
    await setUp()
    let bodies = 0
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', (tx) => {
        bodies++
        return move(tx, 30)
      }),
    )
    await hf.start(pay, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [pay] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe(70)
    expect(bodies).toBe(1)
    expect(await balances()).toEqual({ alice: 70, bob: 30 })
  })

  it('beside others at the start of a run is on its tape: a replay does not execute it again', async () => {
    const hf = await open()
    await setUp()
    const bodies: string[] = []
    const pay = workflow('pay', async (ctx) => {
      const put = (name: string, amount: number) =>
        ctx.transaction(name, (tx) => {
          bodies.push(name)
          return move(tx, amount)
        })
      const left = await Promise.all([put('first', 30), put('second', 20), ctx.step('beside', () => 1), put('third', 10)])
      await ctx.waitFor('go')
      return left
    })
    const run = await hf.start(pay, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual([70, 50, 1, 40])
    expect(bodies).toEqual(['first', 'second', 'third'])
    expect(await balances()).toEqual({ alice: 40, bob: 60 })
    const types = await eventTypes(run)
    expect(types.slice(0, 2)).toEqual(['run_queued', 'run_started'])
  })

  it('that was running at three deaths of its worker fails with worker_died', async () => {
    const client = await open({ worker: false })
    await setUp()
    const dying = { next: gate(), die: () => {} }
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', async (tx) => {
        await move(tx, 30)
        dying.next.open()
        void dying.die()
        // The connection of a dead process is closed, and its transaction rolled back.
        throw new Error('dead')
      }),
    )
    const run = await client.start(pay)
    for (let lives = 0; lives < 5 && (await run.info()).status !== 'failed'; lives++) {
      const mortal = await openMortal({ workflows: [pay] })
      dying.die = mortal.die
      await Promise.race([dying.next.promise, becomes(run, 'failed')])
      dying.next = gate()
      advance(11_000)
    }
    expect(await failureOf(run)).toMatchObject({ code: 'worker_died' })
    expect(await balances()).toEqual({ alice: 100, bob: 0 })
  })

  it('refuses a result that can not be stored, and then nothing was written', async () => {
    const hf = await open()
    await setUp()
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', async (tx) => {
        await move(tx, 30)
        return () => 1
      }),
    )
    expect(await failureOf(await hf.start(pay))).toMatchObject({ code: 'value_not_storable' })
    expect(await balances()).toEqual({ alice: 100, bob: 0 })
  })

  it('refuses a ctx call inside with nested_call, and then nothing was written', async () => {
    const hf = await open()
    await setUp()
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', async (tx) => {
        await move(tx, 30)
        return ctx.step('inner', () => 1)
      }),
    )
    expect(await failureOf(await hf.start(pay))).toMatchObject({ code: 'nested_call' })
    expect(await balances()).toEqual({ alice: 100, bob: 0 })
  })

  it('with wrong SQL fails with the error of the database, and the store works on', async () => {
    const hf = await open()
    const wrong = workflow('wrong', (ctx) => ctx.transaction('sql', (tx) => tx.query('SELECT * FROM nowhere')))
    expect((await failureOf(await hf.start(wrong))).message).toContain('nowhere')
    expect(await hf.run(workflow('other', (ctx) => ctx.step('a', () => 'fine')))).toBe('fine')
  })

  it('beside steps of its own and of other runs keeps every log whole', async () => {
    const hf = await open()
    await setUp()
    const pay = workflow('pay', (ctx) =>
      Promise.all([
        ctx.transaction('one', (tx) => move(tx, 1)),
        ctx.step('beside', () => 'beside'),
        ctx.transaction('two', (tx) => move(tx, 1)),
        ctx.map('many', [1, 2, 3], (n) => n),
      ]),
    )
    const runs = await Promise.all(Array.from({ length: 10 }, () => hf.start(pay)))
    const results = await Promise.all(runs.map((run) => run.result()))
    for (const result of results) expect(result).toMatchObject([expect.any(Number), 'beside', expect.any(Number), [1, 2, 3]])
    expect(await balances()).toEqual({ alice: 80, bob: 20 })
    for (const run of runs) {
      const events = await run.events()
      expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    }
  })

  it('can not be used after it is over', async () => {
    const hf = await open()
    await setUp()
    let leaked: SqlTransaction | undefined
    const pay = workflow('pay', (ctx) =>
      ctx.transaction('move', (tx) => {
        leaked = tx
        return move(tx, 1)
      }),
    )
    await hf.run(pay)
    await expect(Promise.resolve(leaked?.query('UPDATE accounts SET balance = 0'))).rejects.toThrow()
    expect(await balances()).toEqual({ alice: 99, bob: 1 })
  })
})

onEveryStoreWithoutSql('ctx.transaction', ({ open }) => {
  it('is refused with invalid_input, which names the stores that have it', async () => {
    const hf = await open()
    const failure = await failureOf(await hf.start(workflow('pay', (ctx) => ctx.transaction('move', () => 1))))
    expect(failure).toMatchObject({ code: 'invalid_input' })
    expect(failure.message).toContain('SQLite')
  })
})
