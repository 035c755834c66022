import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const said: string[] = []
const airline = {
  book: async (_key: string) => {
    said.push('book flight')
    return { seat: '12A' }
  },
  release: async (seat: string) => void said.push(`release ${seat}`),
}
const calendar = { add: async () => 7, remove: async (entry: number) => void said.push(`remove entry ${entry}`) }

// #region undo
const trip = workflow({ name: 'trip', undoOnFailure: true }, async (ctx) => {
  await ctx.step('note', () => calendar.add(), { undo: (entry) => calendar.remove(entry) })
  await ctx.checkpoint('noted')
  const flight = await ctx.once('flight', {
    idempotent: true,
    run: (key) => airline.book(key),
    undo: ({ seat }) => airline.release(seat), // afterwards its key is free again
  })
  await ctx.waitFor('confirmed')
  return flight.seat
})
// #endregion

const hf = await open('memory:', { workflows: [trip] })
const run = await hf.start(trip)
while ((await run.info()).status !== 'waiting') await new Promise((resolve) => setTimeout(resolve, 10))

// #region rollback
await run.rollback('noted', { by: 'dana' }) // releases the seat, brings the state back, leaves the run paused there
await run.resume() // books anew
// #endregion
while ((await run.info()).status !== 'waiting') await new Promise((resolve) => setTimeout(resolve, 10))

// #region cancel
await run.cancel({ by: 'dana' }) // the last thing first: releases the seat, then removes the entry
const undone = (await run.events()).filter(({ type }) => type === 'step_undone').map(({ step }) => step)
console.log(undone) // flight (of the rollback), then flight, note
// #endregion
assert.deepEqual(undone, ['flight', 'flight', 'note'])
assert.deepEqual(said, ['book flight', 'release 12A', 'book flight', 'release 12A', 'remove entry 7'])
await hf.close()
