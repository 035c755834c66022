import { describe, expect, it } from 'vitest'
import {
  batchSize,
  changeSchedule,
  type Schedule,
  type ScheduleSettings,
  shownSettings,
  takeDueTicks,
  wakeTime,
} from './schedule.ts'

const minute = 60_000
const settings: ScheduleSettings = {
  ...{ timing: { everyMs: minute }, workflow: 'w', version: 1, queue: 'default', priority: 0, ifMissed: 'latest' },
}
const hourly: ScheduleSettings = { ...settings, timing: { everyMs: 60 * minute } }
const start = 1_000 * 60 * minute
const schedule: Schedule = { name: 's', settings, isPaused: false, after: start }

describe('ticks that are due', () => {
  it('are none before the next one', () => {
    expect(wakeTime(schedule)).toBe(start + minute)
    expect(takeDueTicks(schedule, start + minute - 1)).toMatchObject({ ticks: [] })
  })

  it('and missed are made up for by the latest, by all, or not at all', () => {
    const now = start + 3 * 60 * minute + 30 * minute
    const dueOf = (ifMissed: ScheduleSettings['ifMissed']) =>
      takeDueTicks({ ...schedule, settings: { ...hourly, ifMissed } }, now).ticks.map((tick) => (tick - start) / (60 * minute))
    expect(dueOf('latest')).toEqual([3])
    expect(dueOf('all')).toEqual([1, 2, 3])
    expect(dueOf('skip')).toEqual([])
  })

  it('are not missed within a minute', () => {
    const skipping = { ...schedule, settings: { ...hourly, ifMissed: 'skip' } as const }
    expect(takeDueTicks(skipping, start + 60 * minute + 59_999).ticks).toEqual([start + 60 * minute])
    expect(takeDueTicks(skipping, start + 60 * minute + 60_000).ticks).toEqual([])
  })

  it('are taken in batches, each tick once, and a second apart', () => {
    let left: Schedule = { ...schedule, settings: { ...hourly, ifMissed: 'all' } }
    let now = start + 10_050 * 60 * minute
    const taken: number[] = []
    for (let wake = wakeTime(left); wake !== null && wake <= now; wake = wakeTime(left)) {
      const { ticks, changed } = takeDueTicks(left, now)
      expect(ticks.length).toBeLessThanOrEqual(batchSize)
      taken.push(...ticks)
      if (ticks.length === batchSize) {
        expect(wakeTime(changed)).toBe(now + 1_000)
        now += 1_000
      }
      left = changed
    }
    expect(taken).toEqual(Array.from({ length: 10_050 }, (_, index) => start + (index + 1) * 60 * minute))
  })
})

describe('a change', () => {
  it('of the timing lets the old one deal with what it missed, and ticks from then on', () => {
    const at = start + 3 * 60 * minute + 30 * minute
    const changed = changeSchedule({ ...schedule, settings: hourly }, { kind: 'set', settings, at })
    expect(wakeTime(changed)).toBe(start + 60 * minute)
    const { ticks, changed: then } = takeDueTicks(changed, at + 10 * minute)
    expect(ticks).toEqual([start + 3 * 60 * minute])
    expect(then).toMatchObject({ settings, after: at })
    expect(then).not.toHaveProperty('next')
  })

  it('of anything else counts for what was missed, too', () => {
    const other = { ...settings, workflow: 'other' }
    expect(changeSchedule(schedule, { kind: 'set', settings: other, at: start + minute })).toEqual({
      ...schedule,
      settings: other,
    })
  })

  it('that is met twice shows as one', () => {
    const changes = [
      { kind: 'set', settings: hourly, at: start + 1 },
      { kind: 'pause', at: start + 2 },
      { kind: 'resume', at: start + 3 },
      { kind: 'set', settings: { ...settings, priority: 1 }, at: start + 4 },
    ] as const
    const shown = (one: Schedule) => ({ settings: shownSettings(one), isPaused: one.isPaused })
    for (let length = 1; length <= changes.length; length++) {
      const once = changes.slice(0, length).reduce(changeSchedule, schedule)
      for (let from = 0; from < length; from++) {
        const twice = changes.slice(from, length).reduce(changeSchedule, once)
        expect(shown(twice)).toEqual(shown(once))
      }
    }
  })

  it('to paused stops what was missed, and to resumed goes on from then', () => {
    const paused = changeSchedule(schedule, { kind: 'pause', at: start + 5 * minute })
    expect(wakeTime(paused)).toBe(null)
    const resumed = changeSchedule(paused, { kind: 'resume', at: start + 9 * minute + 1 })
    expect(wakeTime(resumed)).toBe(start + 10 * minute)
  })
})
