import assert from 'node:assert/strict'
import { workflow } from 'holdfast'
import { explore, mockSteps } from 'holdfast/testing'

// #region world
/** Stands for the bank in tests: it pays whenever it is told to, and can be asked. */
class FakeBank {
  readonly payments: { key: string; amount: number }[] = []

  async pay(key: string, amount: number) {
    this.payments.push({ key, amount })
    return { receipt: `r-${key}` }
  }

  async find(key: string) {
    return this.payments.some((payment) => payment.key === key) ? { receipt: `r-${key}` } : undefined
  }
}
// #endregion

const assess = async (_order: string) => 'harmless'

// #region workflow
const refundWith = (bank: FakeBank) =>
  workflow('refund', async (ctx, { order, amount }: { order: string; amount: number }) => {
    const risk = await ctx.step('assess', () => assess(order))
    const answer = await ctx.ask<{ ok: boolean }>('approve', { question: { order, amount, risk } })
    if (!answer.ok) return { status: 'declined' }
    await ctx.once('pay', {
      key: `refund:${order}`,
      run: (key) => bank.pay(key, amount),
      check: async (key) => {
        const paid = await bank.find(key)
        return paid === undefined ? { happened: false } : { happened: true, result: paid }
      },
    })
    return { status: 'refunded' }
  })
// #endregion

// #region explore
const report = await explore({
  world: () => new FakeBank(), // fresh for every case; it outlives the crashes of one
  workflow: (bank) => refundWith(bank),
  input: { order: '4711', amount: 40 },
  answers: { approve: { ok: true } }, // what people say
  invariant: ({ world, output }) => {
    assert.equal(world.payments.length, 1)
    assert.equal(output.status, 'refunded')
  },
})
assert.equal(report.failures.length, 0, String(report))
// #endregion
assert.ok(report.cases.length > 20)

// #region wrong
const careless = (bank: FakeBank) =>
  workflow('careless', async (ctx, amount: number) => {
    await ctx.step('assess', () => assess('4711'))
    await ctx.step('pay', () => bank.pay('4711', amount)) // a step, and not an effect
  })
const found = await explore({
  world: () => new FakeBank(),
  workflow: careless,
  input: 40,
  compare: ({ world }) => world.payments.length, // must be as it is without any fault
})
console.log(String(found))
// #endregion
assert.deepEqual(
  found.failures.map(({ point }) => point),
  [
    'after step_completed assess #1, before step_completed pay #1',
    'after step_completed assess #1, before step_completed pay #1, where the process stalled and another took over',
  ],
)

// #region again
const [failure] = found.failures
await explore({ world: () => new FakeBank(), workflow: careless, input: 40, only: failure?.seed ?? '' }) // this case alone
// #endregion

// #region mocks
const mocked = await explore({
  world: () => new FakeBank(),
  workflow: (bank) => mockSteps(refundWith(bank), { assess: 'harmless' }), // what asks a model takes too long
  input: { order: '4711', amount: 40 },
  answers: { approve: { ok: false } },
})
// #endregion
assert.equal(mocked.failures.length, 0, String(mocked))
