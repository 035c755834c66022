import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const warehouse = { parcels: 0, pack: async () => ++warehouse.parcels }

// #region signal
const order = workflow('order', async (ctx, input: { id: string }) => {
  const payment = await ctx.waitFor<{ amount: number }>('paid', { timeoutMs: 7 * 86_400_000 }).catch(() => null) // `timeout`: a week has passed
  if (payment === null) return 'expired'
  const label = await ctx.call(shipping, { order: input.id }) // a child: its own run, its own thread
  return `${label}, paid ${payment.amount}`
})

const shipping = workflow('shipping', async (ctx, input: { order: string }) => {
  const parcel = await ctx.step('pack', () => warehouse.pack())
  return `parcel ${parcel} of ${input.order}`
})
// #endregion

// #region several
const chat = workflow('chat', async (ctx) => {
  const said: unknown[] = []
  for (;;) {
    const next = await ctx.waitFor(['message', 'stop']) // the oldest that is there, else the first that comes
    if (next.name === 'stop') return said
    said.push(next.value)
  }
})
// #endregion

// #region withdraw
const remind = workflow('remind', async (ctx) => {
  const abort = new AbortController()
  const paid = ctx.waitFor<number>('paid', { signal: abort.signal })
  const waiting = await Promise.race([paid, ctx.sleep(50).then(() => null)])
  if (waiting !== null) return waiting
  abort.abort() // from here on it takes no signal, and rejects with the reason
  return await ctx.waitFor<number>('paid_late')
})
// #endregion

const hf = await open('memory:', { workflows: [order, shipping, chat, remind] })

// #region send
const run = await hf.start(order, { id: '4711' }, { id: 'order-4711' })
await hf.signal('order-4711', 'paid', { amount: 20 }) // from any process; kept if the run does not wait for it yet
console.log(await run.result()) // parcel 1 of 4711, paid 20
// #endregion
assert.equal(await run.result(), 'parcel 1 of 4711, paid 20')
assert.equal((await (await hf.runs.get('order-4711/shipping#1')).info()).status, 'completed')
const talk = await hf.start(chat, undefined, { id: 'chat' })
for (const text of ['one', 'two']) await hf.signal('chat', 'message', text)
await hf.signal('chat', 'stop')
assert.deepEqual(await talk.result(), ['one', 'two'])
const late = await hf.start(remind, undefined, { id: 'remind' })
await hf.signal('remind', 'paid_late', 5)
assert.equal(await late.result(), 5)
await hf.close()
