import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { open, workflow } from 'holdfast'

const sent: string[] = []
async function send(topic: string, day: string): Promise<void> {
  sent.push(`${topic} of ${day}`)
}

// #region workflow
const report = workflow('report', async (ctx, input: { topic: string }) => {
  const day = new Date(ctx.scheduledAt ?? ctx.now()).toISOString().slice(0, 10) // of the tick, also when the run comes late
  await ctx.step('send', () => send(input.topic, day))
})
// #endregion

let offsetMs = Date.parse('2030-05-01T00:00:00Z') - Date.now()
const hf = await open('memory:', { workflows: [report], clock: () => offsetMs })

// #region set
await hf.schedules.set('refunds', {
  cron: '0 9 * * 1-5', // nine in the morning on weekdays, in the zone below, summer and winter
  timeZone: 'Europe/Berlin',
  workflow: report,
  input: { topic: 'refunds' },
})
// #endregion
assert.deepEqual((await hf.schedules.get('refunds')).next, Date.parse('2030-05-01T07:00:00Z'))

// #region look
for (const { name, settings, isPaused, next, last } of await hf.schedules.list())
  console.log(name, settings.cron, isPaused, next, last?.runId) // refunds 0 9 * * 1-5 false 1903849200000 undefined

console.log(await hf.schedules.next('refunds', { count: 5 })) // the next five times, in ms since 1970
// #endregion

offsetMs += 8 * 3_600_000 + 1_000
await eventually(() => hf.runs.get('refunds@2030-05-01T07:00:00.000Z'))
// #region run
const run = await hf.runs.get('refunds@2030-05-01T07:00:00.000Z') // the run of that tick
await run.result()
// #endregion
assert.deepEqual(sent, ['refunds of 2030-05-01'])

// #region control
await hf.schedules.pause('refunds') // nothing is started, and nothing made up for later
await hf.schedules.resume('refunds') // continues with the next tick

const extra = await hf.schedules.trigger('refunds') // one run now, beside the ticks
await extra.result()

const { started, existing } = await hf.schedules.backfill('refunds', {
  from: Date.parse('2030-04-24T00:00:00Z'),
  to: Date.parse('2030-05-01T08:00:00Z'), // default now
})
console.log(started, existing) // 5 1: the five weekdays before, and the one that has its run

await hf.schedules.delete('refunds') // the runs that it started live on
// #endregion
assert.deepEqual([started, existing], [5, 1])
assert.deepEqual(await hf.schedules.list(), [])
await eventually(async () => assert.equal(sent.length, 7))
await hf.close()

async function eventually<T>(look: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await look()
    } catch (error) {
      if (tries === 200) throw error
      await delay(20)
    }
  }
}
