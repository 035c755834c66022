import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

const shop = { price: async (order: string) => (order === 'order-1' ? 1_500 : 2_400) }
let isWrong = false
let isCutOff = false
const bank = {
  rate: async () => (isWrong ? 6.2 : 0.0062),
  pay: async (amount: number, key: string) => {
    if (isCutOff) throw new Error('connection reset')
    return `${key}: ${amount}`
  },
}

interface Ticket {
  messages: { role: string; text: string }[]
  refund?: { euros: number }
}

const ticket = state({ version: 1, initial: (): Ticket => ({ messages: [] }) })

// #region workflow
const support = workflow({ name: 'support', state: ticket }, async (ctx, order: string) => {
  const yen = await ctx.step('look_up', () => shop.price(order), { kind: 'tool', input: order })
  const rate = await ctx.step('exchange_rate', () => bank.rate(), { kind: 'tool' })
  const euros = await ctx.step(
    'decide',
    (step) => {
      const amount = Math.round(yen * rate)
      step.usage({ model: 'small', inputTokens: 900, outputTokens: 40, cost: 0.004 })
      step.update((draft) => {
        draft.refund = { euros: amount }
        draft.messages.push({ role: 'assistant', text: `We refund ${amount} euros.` })
      })
      return amount
    },
    { kind: 'model', input: { yen, rate } },
  )
  return ctx.once('refund', { key: `refund:${order}`, run: (key) => bank.pay(euros, key) })
})
// #endregion

const hf = await open('memory:', { workflows: [support] })
await hf.run(support, 'order-1', { id: 'ticket-1' })
isWrong = true
isCutOff = true
const run = await hf.start(support, 'order-2', { id: 'ticket-2' })
while ((await run.info()).reason !== 'person') await new Promise((resolve) => setTimeout(resolve, 10))

// #region explain
const explanation = await hf.debug.explain('ticket-2')
console.log(String(explanation))
// #endregion
assert.match(explanation.text, /It is not known whether effect "refund" \(key "refund:order-2"\) happened: connection reset\./)

// #region timeline
for (const row of await hf.debug.timeline('ticket-2')) {
  console.log(row.checkpoint, row.step, row.stepCount, row.messageCount, row.durationMs, row.bytes, row.tokens, row.cost)
}
const overview = await hf.debug.timeline('ticket-2', { buckets: 200 }) // a run of months, in 200 rows
// #endregion
assert.equal(overview.at(-1)?.messageCount, 1)

// #region replay
for await (const step of hf.debug.replay('ticket-2')) {
  console.log(step.kind, step.name, step.attempt, step.input, step.output ?? step.error, step.state)
}
// #endregion

const rows = await hf.debug.timeline('ticket-2')
const [before, after] = ['exchange_rate', 'decide'].map((name) => rows.find(({ step }) => step === name)?.checkpoint) as [
  string,
  string,
]

// #region diff
const { messagesAdded, stepsAdded, changes } = await hf.debug.diff(before, after)
console.log(messagesAdded, stepsAdded) // 1 1
for (const { change, path } of changes) console.log(change, path.join('.')) // added messages.0, added refund
// #endregion
assert.deepEqual([messagesAdded, stepsAdded, changes.length], [1, 1, 2])

// #region blame
const { value, last } = await hf.debug.blame(after, 'refund.euros')
console.log(value, last?.step, last?.attempt, last?.by) // 14880 decide 1 null
// #endregion
assert.deepEqual([value, last?.step], [14_880, 'decide'])

// #region runs
const { firstDivergence } = await hf.debug.diffRuns('ticket-1', 'ticket-2')
console.log(firstDivergence?.name, firstDivergence?.differs) // look_up [ 'input', 'output' ]: another order
const { rows: calls } = await hf.debug.diffRuns('ticket-1', 'ticket-2')
for (const { name, a, b } of calls) console.log(name, a?.output, b?.output, a?.durationMs, b?.durationMs, a?.cost, b?.cost)
// #endregion
assert.equal(firstDivergence?.name, 'look_up')
assert.deepEqual(
  calls.filter(({ name }) => name === 'exchange_rate').map(({ a, b }) => [a?.output, b?.output]),
  [[0.0062, 6.2]],
)

// #region effects
const { items } = await hf.debug.effects({ status: 'unsure' })
for (const { key, runId, doubt, evidence, events } of items) console.log(key, runId, doubt, evidence, events.length)
// #endregion
assert.deepEqual(
  items.map(({ key }) => key),
  ['refund:order-2'],
)

// #region part
const texts = await hf.thread('ticket-2').stateAt(after, { path: 'messages', depth: 2, limit: 100 })
// #endregion
assert.deepEqual(texts, [{ role: 'assistant', text: 'We refund 14880 euros.' }])

// #region fork
const whatIf = await hf.thread('ticket-2').fork(after, { replace: { exchange_rate: 0.0062 }, by: 'dana' })
const tried = await whatIf.resume()
while ((await tried.info()).completedSteps.length < 3) await new Promise((resolve) => setTimeout(resolve, 10))
console.log(await whatIf.state()) // refund: { euros: 15 }; its refund waits, because the key belongs to ticket-2
await tried.cancel()
// #endregion
assert.deepEqual((await whatIf.state<Ticket>()).refund, { euros: 15 })
isWrong = false
isCutOff = false

// #region repair
await run.pause({ by: 'dana' }) // first: once it is resolved, the run would send the wrong amount
await hf.resolve('refund:order-2', { happened: false, by: 'dana' }) // the bank says: no such payment
const lookedUp = rows.find(({ step }) => step === 'look_up')?.checkpoint as string
await run.rollback(lookedUp, { by: 'dana' }) // before the wrong rate; what came after it is forgotten
await run.resume({ by: 'dana' })
console.log(await run.result()) // refund:order-2: 15
// #endregion
assert.equal(await run.result(), 'refund:order-2: 15')

// #region audit
for (const { at, by, decision, to } of await hf.debug.audit('ticket-2')) console.log(new Date(at), by, decision, to)
// #endregion
const decisions = (await hf.debug.audit('ticket-2')).map(({ decision }) => decision)
assert.deepEqual([decisions[0], decisions.at(-1)], ['paused', 'resumed'])

const solved = (await hf.debug.timeline('ticket-1')).find(({ step }) => step === 'exchange_rate')?.checkpoint as string

// #region rewind
const closed = hf.thread('ticket-1')
await closed.rewind(solved, { by: 'dana' }) // the run has ended; the state is as it was before the answer
await closed.run(support, 'order-1') // starts from there
// #endregion
assert.equal((await closed.state<Ticket>()).messages.length, 1)
await hf.close()
