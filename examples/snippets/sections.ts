import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

let bookings = 0
const bookFlight = async (): Promise<string> => `flight ${++bookings}`
const bookHotel = async (attempt: number): Promise<string> => {
  if (attempt === 1) throw new Error('the hotel does not answer')
  return 'hotel 1'
}

// #region section
const travel = workflow('travel', async (ctx) => {
  return await ctx.section(
    'book',
    async () => ({
      flight: await ctx.step('flight', () => bookFlight()),
      hotel: await ctx.step('hotel', ({ attempt }) => bookHotel(attempt), { retry: { attempts: 1 } }),
    }),
    { retry: { attempts: 3, minMs: 100 }, onFailure: 'pause' }, // of the two together: a flight that is booked stays booked
  )
})
// #endregion

const hf = await open('sqlite:sections.db', { workflows: [travel] })
assert.deepEqual(await hf.run(travel), { flight: 'flight 1', hotel: 'hotel 1' })
await hf.close()
