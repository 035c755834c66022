import { type Holdfast, open as openAnywhere, type ScheduleOptions, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { codeOfRejection, eventTypes } from './runs.ts'
import { onLocalStores, type Scene } from './stores.ts'

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const waiting = { timeout: 20_000, interval: 10 }

const job = workflow('job', async (ctx, input: { topic: string } | undefined) => ({ input, scheduledAt: ctx.scheduledAt }))
const hourly: ScheduleOptions<typeof job> = { everyMs: hour, workflow: job }
const scheduleId = 'holdfast.schedule:hourly'

/** A clock that can be set to an hour of a day in the future. */
function clockOf({ advance }: Scene) {
  let offsetMs = 0
  return (iso: string) => {
    const byMs = Date.parse(iso) - (Date.now() + offsetMs)
    expect(byMs).toBeGreaterThan(0)
    offsetMs += byMs
    advance(byMs)
  }
}

/** The ids of the runs that schedules started, the oldest tick first. */
async function started(hf: Holdfast): Promise<string[]> {
  return (await hf.runs.list({ workflow: 'job', limit: 1_000 })).items.map(({ id }) => id).sort()
}

/** Waits until just these have been started and the schedule waits for what comes next. */
async function untilStarted(hf: Holdfast, ids: readonly string[], schedule = scheduleId): Promise<void> {
  await vi.waitUntil(async () => (await started(hf)).length >= ids.length, waiting)
  await idle(hf, schedule)
  expect(await started(hf)).toEqual([...ids].sort())
}

/** Waits until the schedule's run has nothing to do for now. */
async function idle(hf: Holdfast, schedule = scheduleId): Promise<void> {
  const run = await hf.runs.get(schedule)
  const isIdle = async () => {
    const [before, info, after] = [await run.events(), await run.info(), await run.events()]
    return info.status === 'waiting' && before.length === after.length && after.at(-1)?.type === lastOf(after)
  }
  await vi.waitUntil(isIdle, waiting)
}

/** What a schedule that waits has written last: when it will go on, or, where it is paused, how it began its tape. */
function lastOf(events: readonly { type: string }[]): string | undefined {
  return ['timer_set', 'run_started'].find((type) => events.at(-1)?.type === type)
}

onLocalStores('a schedule', (scene) => {
  const { open, openMortal, advance } = scene
  const goTo = (iso: string) => clock(iso)
  let clock = clockOf(scene)
  const begin = (iso = '2030-05-01T00:10Z') => {
    clock = clockOf(scene)
    goTo(iso)
  }

  it('starts one run a tick, however many processes there are', async () => {
    begin()
    const clients = await Promise.all([1, 2, 3].map(() => open({ workflows: [job] })))
    await Promise.all(clients.map((hf) => hf.schedules.set('hourly', { ...hourly, input: { topic: 'refunds' } })))
    const [hf] = clients as [Holdfast]
    await idle(hf)
    const ids: string[] = []
    for (const time of ['01:00', '02:00', '03:00', '04:00']) {
      goTo(`2030-05-01T${time}:01Z`)
      ids.push(`hourly@2030-05-01T${time}:00.000Z`)
      await untilStarted(hf, ids)
    }
    for (const id of ids) {
      const output = await (await hf.runs.get(id)).result()
      expect(output).toEqual({ input: { topic: 'refunds' }, scheduledAt: Date.parse(id.slice('hourly@'.length)) })
    }
    expect(await hf.schedules.get('hourly')).toMatchObject({
      next: Date.parse('2030-05-01T05:00Z'),
      last: { tick: Date.parse('2030-05-01T04:00Z'), runId: ids.at(-1) },
    })
  })

  it('ticks wherever a worker lives, also one that does not have the workflow, or is there for other queues', async () => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', { everyMs: hour, workflow: 'job', queue: 'reports', priority: 3 })
    await open({ worker: { queues: ['mail'] } })
    await idle(client)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(client, ['hourly@2030-05-01T01:00:00.000Z'])
    const run = await client.runs.get('hourly@2030-05-01T01:00:00.000Z')
    expect((await run.info()).status).toBe('pending')
    await open({ workflows: [job], worker: { queues: ['reports'] } })
    expect(await run.result()).toEqual({ input: undefined, scheduledAt: Date.parse('2030-05-01T01:00Z') })
  })

  it('survives the death of its worker before and after everything that it writes', async () => {
    begin()
    const client = await open({ worker: false })
    const deaths = (['run_started', 'timer_set', 'timer_fired', 'child_started', 'signal_received'] as const).flatMap((type) => [
      { before: type },
      { after: type },
    ])
    const ids: string[] = []
    await client.schedules.set('hourly', { ...hourly, priority: 0 })
    for (const [index, death] of deaths.entries()) {
      const mortal = await openMortal({ workflows: [job] }, death)
      await client.schedules.set('hourly', { ...hourly, priority: index })
      const tick = new Date(Date.parse('2030-05-01T01:00Z') + index * hour)
      if ('before' in death ? death.before === 'signal_received' : death.after === 'signal_received') await mortal.dead
      goTo(new Date(tick.getTime() + second).toISOString())
      await mortal.dead
      advance(11_000)
      clock = shifted(clock, 11_000)
      const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
      ids.push(`hourly@${tick.toISOString()}`)
      await untilStarted(client, ids)
      expect((await client.schedules.get('hourly')).settings.priority).toBe(index)
      await hf.close()
    }
  })

  it('goes on after a restart', async () => {
    begin()
    const first = await open({ workflows: [job] })
    await first.schedules.set('hourly', hourly)
    await idle(first)
    await first.close()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T01:00:00.000Z'])
  })

  it('that is paused starts nothing, and makes up for nothing when it goes on', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', { ...hourly, ifMissed: 'all' })
    await hf.schedules.pause('hourly')
    expect(await hf.schedules.get('hourly')).toMatchObject({ isPaused: true })
    expect(await hf.schedules.get('hourly')).not.toHaveProperty('next')
    await idle(hf)
    goTo('2030-05-01T03:30Z')
    await hf.schedules.pause('hourly')
    await hf.schedules.resume('hourly')
    expect(await hf.schedules.get('hourly')).toMatchObject({ isPaused: false, next: Date.parse('2030-05-01T04:00Z') })
    await idle(hf)
    expect(await started(hf)).toEqual([])
    goTo('2030-05-01T04:00:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T04:00:00.000Z'])
  })

  it('can be paused, changed and looked at while no worker lives', async () => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', hourly)
    await client.schedules.set('hourly', { ...hourly, everyMs: 2 * hour })
    await client.schedules.pause('hourly')
    expect(await client.schedules.get('hourly')).toMatchObject({ settings: { everyMs: 2 * hour }, isPaused: true })
    await client.schedules.resume('hourly')
    expect(await client.schedules.get('hourly')).toMatchObject({ isPaused: false, next: Date.parse('2030-05-01T02:00Z') })
    await open({ workflows: [job] })
    await idle(client)
    goTo('2030-05-01T02:00:01Z')
    await untilStarted(client, ['hourly@2030-05-01T02:00:00.000Z'])
  })

  it('that is set again as it is stays as it is, and with other settings goes by them from the next tick on', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', { ...hourly, input: { topic: 'a' } })
    await idle(hf)
    const before = (await (await hf.runs.get(scheduleId)).events()).length
    await hf.schedules.set('hourly', { ...hourly, input: { topic: 'a' } })
    await idle(hf)
    expect((await (await hf.runs.get(scheduleId)).events()).length).toBe(before)
    await hf.schedules.set('hourly', { cron: '30 * * * *', workflow: job, input: { topic: 'b' } })
    await idle(hf)
    goTo('2030-05-01T00:30:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T00:30:00.000Z'])
    goTo('2030-05-01T01:30:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T00:30:00.000Z', 'hourly@2030-05-01T01:30:00.000Z'])
    expect(await (await hf.runs.get('hourly@2030-05-01T01:30:00.000Z')).result()).toMatchObject({ input: { topic: 'b' } })
  })

  it('whose timing changes after a downtime still deals with what it missed before', async () => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', hourly)
    goTo('2030-05-01T03:10Z')
    await client.schedules.set('hourly', { ...hourly, everyMs: minute })
    await open({ workflows: [job] })
    await untilStarted(client, ['hourly@2030-05-01T03:00:00.000Z'])
    goTo('2030-05-01T03:11:01Z')
    await untilStarted(client, ['hourly@2030-05-01T03:00:00.000Z', 'hourly@2030-05-01T03:11:00.000Z'])
  })

  it('that is deleted starts nothing more, leaves its runs alone, and can be set again', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', hourly)
    await idle(hf)
    goTo('2030-05-01T01:00:01Z')
    const ids = ['hourly@2030-05-01T01:00:00.000Z']
    await untilStarted(hf, ids)
    expect(await hf.schedules.delete('hourly')).toBe(true)
    expect(await hf.schedules.delete('hourly')).toBe(false)
    expect(await hf.schedules.list()).toEqual([])
    expect(await codeOfRejection(hf.schedules.get('hourly'))).toBe('schedule_not_found')
    expect(await codeOfRejection(hf.schedules.pause('hourly'))).toBe('schedule_not_found')
    goTo('2030-05-01T02:30Z')
    await hf.schedules.set('hourly', { ...hourly, input: { topic: 'again' } })
    await idle(hf)
    goTo('2030-05-01T03:00:01Z')
    await untilStarted(hf, [...ids, 'hourly@2030-05-01T03:00:00.000Z'])
  })

  it('whose run somebody cancelled can be set again', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', hourly)
    await idle(hf)
    await (await hf.runs.get(scheduleId)).cancel()
    expect(await hf.schedules.list()).toEqual([])
    await hf.schedules.set('hourly', hourly)
    await idle(hf)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T01:00:00.000Z'])
  })

  it.each([
    ['latest', ['03:00']],
    ['all', ['01:00', '02:00', '03:00']],
    ['skip', []],
  ] as const)('with ifMissed %j starts after a downtime the ticks %j', async (ifMissed, times) => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', { ...hourly, ifMissed })
    goTo('2030-05-01T03:30Z')
    await open({ workflows: [job] })
    const ids = times.map((time) => `hourly@2030-05-01T${time}:00.000Z`)
    await untilStarted(client, ids)
    goTo('2030-05-01T04:00:01Z')
    await untilStarted(client, [...ids, 'hourly@2030-05-01T04:00:00.000Z'])
  })

  it('starts the ticks of a stretch that have no run yet when it is asked to', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', hourly)
    await idle(hf)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T01:00:00.000Z'])
    const stretch = { from: Date.parse('2030-04-30T22:00Z'), to: Date.parse('2030-05-01T01:00:00.001Z') }
    expect(await hf.schedules.backfill('hourly', stretch)).toEqual({ started: 3, existing: 1 })
    expect(await hf.schedules.backfill('hourly', stretch)).toEqual({ started: 0, existing: 4 })
    const ids = ['04-30T22', '04-30T23', '05-01T00', '05-01T01'].map((time) => `hourly@2030-${time}:00:00.000Z`)
    expect(await started(hf)).toEqual(ids)
    expect(await (await hf.runs.get(ids[0]!)).result()).toMatchObject({ scheduledAt: Date.parse('2030-04-30T22:00Z') })
    const refusals = [
      { from: Date.parse('2030-05-01T00:00Z'), to: Date.parse('2030-04-01T00:00Z') },
      { from: Date.parse('2030-05-01T00:00Z'), to: Date.parse('2031-01-01T00:00Z') },
      { from: Date.parse('nonsense') },
      { from: '2030-05-01' as never },
      { from: new Date('2030-05-01T00:00Z') as never },
    ]
    for (const refusal of refusals) expect(await codeOfRejection(hf.schedules.backfill('hourly', refusal))).toBe('invalid_input')
    expect((await started(hf)).length).toBe(4)
  })

  it('refuses a stretch with too many ticks before it starts one, and says how far a call can go', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: false })
    await hf.schedules.set('often', { workflow: job, everyMs: second })
    const now = new Date('2030-05-01T00:00Z').getTime()
    const from = now - 100_005_000
    const error = await hf.schedules.backfill('often', { from }).then(
      () => undefined,
      (refusal: { code: string; message: string; details: { to: number } }) => refusal,
    )
    expect(error).toMatchObject({ code: 'invalid_input', message: expect.stringContaining('Nothing was started') })
    expect(error!.details.to).toBe(from + 100_000_000)
    expect(await started(hf)).toEqual([])
  })

  it('starts a run at once when it is triggered, beside its ticks', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', { ...hourly, input: { topic: 'now' } })
    const runs = await Promise.all([hf.schedules.trigger('hourly'), hf.schedules.trigger('hourly')])
    expect(new Set(runs.map(({ id }) => id)).size).toBe(2)
    expect(await runs[0].result()).toEqual({ input: { topic: 'now' }, scheduledAt: expect.any(Number) })
    await idle(hf)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(hf, [...runs.map(({ id }) => id), 'hourly@2030-05-01T01:00:00.000Z'])
  })

  it.each([
    ['30 2 * * *', 'Europe/Berlin', '2030-03-30T12:00Z', ['2030-03-31T01:00', '2030-04-01T00:30']],
    ['30 2 * * *', 'Europe/Berlin', '2030-10-26T12:00Z', ['2030-10-27T00:30', '2030-10-28T01:30']],
    ['30 2 * * *', 'America/New_York', '2030-03-09T12:00Z', ['2030-03-10T07:00', '2030-03-11T06:30']],
    ['30 1 * * *', 'America/New_York', '2030-11-02T12:00Z', ['2030-11-03T05:30', '2030-11-04T06:30']],
  ])('at %s in %s ticks once a day, also when the clocks change (%s)', async (cron, timeZone, from, ticks) => {
    begin(from)
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', { cron, timeZone, workflow: job })
    expect(await hf.schedules.next('hourly', { count: 2 })).toEqual(ticks.map((tick) => Date.parse(`${tick}Z`)))
    await idle(hf)
    const ids: string[] = []
    for (const tick of ticks) {
      goTo(`${tick}:01Z`)
      ids.push(`hourly@${tick}:00.000Z`)
      await untilStarted(hf, ids)
    }
  })

  it('that missed ten thousand ticks starts them a hundred a second, and a pause stops that', async () => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', { ...hourly, ifMissed: 'all' })
    advance(10_000 * hour)
    // For the schedule and for other work, not for what the schedule starts.
    const other = workflow('other', async () => 'done')
    const hf = await open({ workflows: [other], worker: { pollMs: 20 } })
    await vi.waitUntil(async () => (await started(client)).length >= 300, waiting)
    expect(await hf.run(other)).toBe('done')
    await client.schedules.pause('hourly')
    await idle(client)
    const events = await (await hf.runs.get(scheduleId)).events()
    const starts = events.filter(({ type }) => type === 'child_started').map(({ at }) => at)
    const batches = [...new Set(starts.map((_, index) => Math.floor(index / 100)))].map((index) => starts[100 * index]!)
    for (const [index, at] of batches.slice(1).entries()) expect(at - batches[index]!).toBeGreaterThan(0.9 * second)
    advance(minute)
    await hf.schedules.resume('hourly')
    await idle(client)
    expect((await started(client)).length).toBe(starts.length)
    expect(starts.length).toBeLessThan(10_000)
  })

  it('that missed more than a batch of ticks starts each of them once', async () => {
    begin()
    const client = await open({ worker: false })
    await client.schedules.set('hourly', { ...hourly, ifMissed: 'all' })
    advance(250 * hour)
    await open({ workflows: [job], worker: { pollMs: 20 } })
    for (const count of [100, 200, 250]) {
      await vi.waitUntil(async () => (await started(client)).length >= count, waiting)
      await idle(client)
      advance(second)
    }
    const first = Date.parse('2030-05-01T01:00Z')
    const ids = Array.from({ length: 250 }, (_, index) => `hourly@${new Date(first + index * hour).toISOString()}`)
    await untilStarted(client, ids)
    await vi.waitUntil(async () => (await client.runs.list({ status: 'completed', limit: 1_000 })).items.length === 250, waiting)
  })

  it('that ticks every second does not hold the only place of its worker', async () => {
    const hf = await open({ workflows: [job], worker: { concurrency: 1 } })
    await hf.schedules.set('hourly', { everyMs: second, workflow: job })
    await vi.waitUntil(async () => (await hf.runs.list({ workflow: 'job', status: 'completed' })).items.length >= 3, waiting)
  })

  it('checks its input when it is set, and passes it on as it was checked then', async () => {
    begin()
    const schema = z.object({ n: z.string().transform(Number) })
    const strict = workflow({ name: 'job', input: schema as never }, async (_ctx, input: { n: unknown }) => input)
    const hf = await open({ workflows: [strict], worker: { pollMs: 20 } })
    const set = (input: unknown) => hf.schedules.set('hourly', { everyMs: hour, workflow: strict, input: input as never })
    expect(await codeOfRejection(set({ n: 7 }))).toBe('invalid_input')
    await set({ n: '7' })
    await idle(hf)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(hf, ['hourly@2030-05-01T01:00:00.000Z'])
    expect(await (await hf.runs.get('hourly@2030-05-01T01:00:00.000Z')).result()).toEqual({ n: 7 })
    expect(await (await hf.schedules.trigger('hourly')).result()).toEqual({ n: 7 })
  })

  it('keeps its ticks where its queue is full; what people ask for is then refused', async () => {
    begin()
    const hf = await open({ worker: { pollMs: 20 } })
    await hf.queues.set('narrow', { maxQueued: 1 })
    await hf.schedules.set('hourly', { everyMs: hour, workflow: 'job', queue: 'narrow', ifMissed: 'all' })
    await idle(hf)
    goTo('2030-05-01T02:00:01Z')
    const ids = ['hourly@2030-05-01T01:00:00.000Z', 'hourly@2030-05-01T02:00:00.000Z']
    await untilStarted(hf, ids)
    expect(await codeOfRejection(hf.schedules.trigger('hourly'))).toBe('queue_full')
    const stretch = { from: Date.parse('2030-05-01T00:00Z') }
    expect(await codeOfRejection(hf.schedules.backfill('hourly', stretch))).toBe('queue_full')
    await hf.queues.set('narrow', { maxQueued: 10 })
    expect(await hf.schedules.backfill('hourly', stretch)).toEqual({ started: 1, existing: 2 })
  })

  it('moves with its thread into another store', async () => {
    begin()
    const hf = await open({ worker: false })
    await hf.schedules.set('hourly', { ...hourly, input: { topic: 'moved' } })
    const other = await openAnywhere('memory:', { worker: false })
    await other.debug.import(await hf.debug.export(scheduleId))
    expect((await other.schedules.get('hourly')).settings).toEqual((await hf.schedules.get('hourly')).settings)
    await other.close()
  })

  it('belongs to its owner', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    const [ann, bob] = [hf.as('ann'), hf.as('bob')]
    await ann.schedules.set('hourly', { ...hourly, input: { topic: 'ann' } })
    await bob.schedules.set('hourly', { ...hourly, input: { topic: 'bob' } })
    expect((await ann.schedules.list()).map(({ settings }) => settings.input)).toEqual([{ topic: 'ann' }])
    expect(await hf.schedules.list()).toEqual([])
    await bob.schedules.delete('hourly')
    expect((await ann.schedules.list()).length).toBe(1)
    await idle(ann)
    goTo('2030-05-01T01:00:01Z')
    await untilStarted(ann, ['hourly@2030-05-01T01:00:00.000Z'])
    expect([await started(bob), await started(hf)]).toEqual([[], []])
  })

  it('is listed with its settings, and says when it ticks next', async () => {
    begin()
    const hf = await open({ worker: false })
    await hf.schedules.set('weekly', { cron: '0 9 * * 1', timeZone: 'Europe/Berlin', workflow: 'job', input: { a: new Date(1) } })
    await hf.schedules.set('hourly', { everyMs: hour, workflow: job, queue: 'q', priority: 2, ifMissed: 'skip' })
    const defaults = { workflow: 'job', version: 1, queue: 'default', priority: 0, ifMissed: 'latest' }
    expect(await hf.schedules.list()).toEqual([
      {
        name: 'hourly',
        settings: { ...defaults, everyMs: hour, queue: 'q', priority: 2, ifMissed: 'skip' },
        isPaused: false,
        next: Date.parse('2030-05-01T01:00Z'),
      },
      {
        name: 'weekly',
        settings: { ...defaults, cron: '0 9 * * 1', timeZone: 'Europe/Berlin', input: { a: new Date(1) } },
        isPaused: false,
        next: Date.parse('2030-05-06T07:00Z'),
      },
    ])
    expect(await hf.schedules.next('weekly', { count: 2 })).toEqual([
      Date.parse('2030-05-06T07:00Z'),
      Date.parse('2030-05-13T07:00Z'),
    ])
    expect(await codeOfRejection(hf.schedules.next('weekly', { count: 0 }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.schedules.next('daily'))).toBe('schedule_not_found')
  })

  it('that can’t be is refused, and nothing is set', async () => {
    const hf = await open({ worker: false })
    const refusals: [string, unknown][] = [
      ['invalid_input', {}],
      ['invalid_input', { cron: 'soon', workflow: 'job' }],
      ['invalid_input', { cron: '* * * * *', timeZone: 'Mars/Olympus', workflow: 'job' }],
      ['invalid_input', { everyMs: 10, workflow: 'job' }],
      ['invalid_input', { everyMs: hour, workflow: 'job', ifMissed: 'some' }],
      ['invalid_input', { everyMs: hour, workflow: 'job', priority: 0.5 }],
      ['invalid_input', { everyMs: hour, workflow: 'job', version: 0 }],
      ['invalid_input', { everyMs: hour, workflow: 'holdfast.schedule' }],
      ['invalid_id', { everyMs: hour, workflow: '' }],
      ['invalid_id', { everyMs: hour, workflow: 'job', queue: '\n' }],
      ['value_not_storable', { everyMs: hour, workflow: 'job', input: () => 1 }],
    ]
    for (const [code, options] of refusals)
      expect(await codeOfRejection(hf.schedules.set('hourly', options as ScheduleOptions)), JSON.stringify(options)).toBe(code)
    for (const name of ['', 'a\nb', 'x'.repeat(500), 7 as never])
      expect(await codeOfRejection(hf.schedules.set(name, hourly))).toBe('invalid_id')
    expect(await hf.schedules.list()).toEqual([])
  })

  it('does not show among the runs, unless one asks for it', async () => {
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', hourly)
    await idle(hf)
    expect((await hf.runs.list()).items).toEqual([])
    expect((await hf.runs.list({ workflow: 'holdfast.schedule' })).items.map(({ id }) => id)).toEqual([scheduleId])
    expect(await codeOfRejection(hf.start('holdfast.schedule', {}))).toBe('invalid_input')
    const caller = workflow('caller', (ctx) => ctx.call('holdfast.schedule', {}).catch((error: { code: string }) => error.code))
    expect(await hf.run(caller)).toBe('invalid_input')
  })

  it('keeps a short tape, however long it has been ticking', async () => {
    begin()
    const hf = await open({ workflows: [job], worker: { pollMs: 20 } })
    await hf.schedules.set('hourly', hourly)
    const run = await hf.runs.get(scheduleId)
    await idle(hf)
    for (let index = 1; index <= 5; index++) {
      goTo(new Date(Date.parse('2030-05-01T00:00:01Z') + index * hour).toISOString())
      await vi.waitUntil(async () => (await started(hf)).length === index, waiting)
      await idle(hf)
    }
    const types = await eventTypes(run)
    expect(types.slice(types.lastIndexOf('run_started'))).toEqual(['run_started', 'value_recorded', 'timer_set'])
  })
})

/** The clock was moved by other means meanwhile. */
function shifted(clock: (iso: string) => void, byMs: number): (iso: string) => void {
  return (iso) => clock(new Date(Date.parse(iso) - byMs).toISOString())
}
