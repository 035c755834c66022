import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { NotHappened, open, workflow } from 'holdfast'

let calls: string[] = []
const paid = new Map<string, { chargeId: string }>()
const payments = {
  charge: async (cents: number, key: string) => {
    calls.push(key)
    if (cents === 13) throw new Error('socket hang up')
    const charge = paid.get(key) ?? { chargeId: `c${paid.size + 1}` }
    paid.set(key, charge)
    return charge
  },
  find: async (key: string) => paid.get(key),
}
let refusals = 1
async function post(_text: string, _options: { key: string; signal: AbortSignal }): Promise<Response> {
  calls.push('post')
  return new Response('{"id":"w1"}', { status: refusals-- > 0 ? 503 : 200 })
}

// #region idempotent
const charge = workflow('charge', async (ctx, input: { order: string; cents: number }) => {
  return await ctx.once('charge', {
    key: `charge:${input.order}`,
    run: (key) => payments.charge(input.cents, key), // the provider knows the key and charges once for it
    idempotent: true,
    timeoutMs: 30_000,
  })
})
// #endregion

// #region check
const chargeChecked = workflow('charge_checked', async (ctx, input: { order: string; cents: number }) => {
  return await ctx.once('charge', {
    key: `checked:${input.order}`,
    run: (key) => payments.charge(input.cents, key),
    check: async (key) => {
      const found = await payments.find(key)
      return found === undefined ? { happened: false } : { happened: true, result: found }
    },
  })
})
// #endregion

// #region not-happened
const publish = workflow('publish', async (ctx, text: string) => {
  return await ctx.once('post', {
    run: async (key, { signal }) => {
      const response = await post(text, { key, signal })
      if (response.status === 503) throw new NotHappened(new Error('busy')) // refused: surely nothing was posted
      if (!response.ok) throw new Error(`status ${response.status}`) // who knows: the outcome is hidden
      return (await response.json()) as { id: string }
    },
    retry: { attempts: 5 },
  })
})
// #endregion

// #region unsure
const chargeOnce = workflow('charge_once', async (ctx, input: { order: string; cents: number }) => {
  return await ctx.once('charge', { key: `once:${input.order}`, run: (key) => payments.charge(input.cents, key) })
})
// #endregion

const hf = await open('memory:', { workflows: [charge, chargeChecked, publish, chargeOnce] })
assert.deepEqual(await hf.run(charge, { order: 'o1', cents: 100 }), { chargeId: 'c1' })
assert.deepEqual(await hf.run(chargeChecked, { order: 'o1', cents: 100 }), { chargeId: 'c2' })
calls = []
assert.deepEqual(await hf.run(publish, 'hello'), { id: 'w1' })
assert.deepEqual(calls, ['post', 'post'])
calls = []
const run = await hf.start(chargeOnce, { order: 'o2', cents: 13 })
while ((await run.info()).status !== 'waiting') await sleep(10)

// #region resolve
for (const { id } of (await hf.runs.list({ status: 'waiting' })).items) {
  const events = await (await hf.runs.get(id)).events()
  const unsure = events.findLast(({ type }) => type === 'effect_unsure')
  console.log(id, unsure?.step, unsure?.data) // the key, and what was thrown
}
await hf.resolve('once:o2', { happened: true, result: { chargeId: 'c77' }, by: 'dana' })
// #endregion
assert.deepEqual(await run.result(), { chargeId: 'c77' })
assert.deepEqual(calls, ['once:o2'])
await hf.close()
