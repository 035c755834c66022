import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checkTiming, latestTick, nextTick, type Timing, ticksBetween } from './timing.ts'

const at = (iso: string) => Date.parse(iso)
const shown = (ticks: readonly number[]) => ticks.map((tick) => new Date(tick).toISOString().replace(':00.000Z', 'Z'))

describe('ticks by cron', () => {
  const ticksFrom = (cron: string, timeZone: string, from: string, count: number) =>
    shown(ticksBetween({ cron, timeZone }, at(from), Number.POSITIVE_INFINITY, count))

  it.each([
    ['Europe/Berlin', '2026-03-28T12:00Z', ['2026-03-29T07:00Z', '2026-03-30T07:00Z']],
    ['Europe/Berlin', '2026-10-24T05:00Z', ['2026-10-24T07:00Z', '2026-10-25T08:00Z']],
    ['America/New_York', '2026-03-07T12:00Z', ['2026-03-07T14:00Z', '2026-03-08T13:00Z']],
    ['America/New_York', '2026-10-31T12:00Z', ['2026-10-31T13:00Z', '2026-11-01T14:00Z']],
  ])('at nine in the morning are at nine in %s, also when the clocks change', (timeZone, from, expected) => {
    expect(ticksFrom('0 9 * * *', timeZone, from, 2)).toEqual(expected)
  })

  it.each([
    ['Europe/Berlin', '30 2 * * *', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:30Z']],
    ['America/New_York', '30 2 * * *', '2026-03-07T12:00Z', ['2026-03-08T07:00Z', '2026-03-09T06:30Z']],
  ])('at a time that is left out when the clocks go forward in %s are right after it', (timeZone, cron, from, expected) => {
    expect(ticksFrom(cron, timeZone, from, 2)).toEqual(expected)
  })

  it.each([
    ['Europe/Berlin', '30 2 * * *', '2026-10-24T12:00Z', ['2026-10-25T00:30Z', '2026-10-26T01:30Z']],
    ['America/New_York', '30 1 * * *', '2026-10-31T12:00Z', ['2026-11-01T05:30Z', '2026-11-02T06:30Z']],
  ])('at a time that comes twice when the clocks go back in %s are at the first', (timeZone, cron, from, expected) => {
    expect(ticksFrom(cron, timeZone, from, 2)).toEqual(expected)
  })

  it('every hour are an hour apart through both changes', () => {
    for (const from of ['2026-03-28T23:00Z', '2026-10-24T22:00Z']) {
      const ticks = ticksBetween({ cron: '0 * * * *', timeZone: 'Europe/Berlin' }, at(from), Number.POSITIVE_INFINITY, 6)
      expect(ticks).toEqual([1, 2, 3, 4, 5, 6].map((hours) => at(from) + hours * 3_600_000))
    }
  })

  it('may have a field of seconds', () => {
    expect(ticksFrom('*/30 * * * * *', 'UTC', '2026-01-01T00:00Z', 2)).toEqual(['2026-01-01T00:00:30.000Z', '2026-01-01T00:01Z'])
  })
})

describe('every timing', () => {
  const timings: Timing[] = [
    { everyMs: 7_001 },
    { cron: '30 2 * * *', timeZone: 'Europe/Berlin' },
    { cron: '*/20 1-3 * * *', timeZone: 'Europe/Berlin' },
    { cron: '15,45 1,2 * * *', timeZone: 'America/New_York' },
    { cron: '0 0 * * 1-5', timeZone: 'Asia/Kolkata' },
    { cron: '*/17 * * * * *', timeZone: 'UTC' },
  ]
  const changes = ['2026-03-29T01:00Z', '2026-10-25T01:00Z', '2026-03-08T07:00Z', '2026-11-01T06:00Z']

  it('has the same ticks from wherever it is looked at', () => {
    const instant = fc.tuple(fc.constantFrom(...changes), fc.integer({ min: -86_400_000, max: 86_400_000 }))
    const check = fc.property(fc.constantFrom(...timings), instant, (timing, [change, offsetMs]) => {
      const time = at(change) + offsetMs
      const next = nextTick(timing, time) as number
      expect(next).toBeGreaterThan(time)
      expect(nextTick(timing, next - 1)).toBe(next)
      expect(latestTick(timing, next)).toBe(next)
      expect(latestTick(timing, next - 1)).toBeLessThanOrEqual(time)
      expect(nextTick(timing, latestTick(timing, time) as number)).toBe(next)
    })
    fc.assert(check, { numRuns: 300 })
  })
})

describe('a timing', () => {
  const now = at('2026-11-16T00:00Z')

  it('is in UTC unless told otherwise', () => {
    expect(checkTiming({ cron: ' 0 9 * * * ' }, now)).toEqual({ cron: '0 9 * * *', timeZone: 'UTC' })
    expect(checkTiming({ everyMs: 60_000 }, now)).toEqual({ everyMs: 60_000 })
  })

  it.each([
    [{}, 'either cron or everyMs'],
    [{ cron: '* * * * *', everyMs: 1_000 }, 'either cron or everyMs'],
    [{ cron: '61 * * * *' }, 'Invalid value for minute: 61'],
    [{ cron: 'soon' }, '"soon"'],
    [{ cron: 5 }, 'of type number'],
    [{ cron: '0 0 30 2 *' }, 'never ticks'],
    [{ cron: '2030-01-01T00:00:00' }, 'hf.start with runAt'],
    [{ cron: '* * * * *', timeZone: 'Mars/Olympus' }, '"Mars/Olympus"'],
    [{ cron: '* * * * *', timeZone: 7 }, '"7"'],
    [{ everyMs: 1_000, timeZone: 'UTC' }, 'only cron has one'],
    [{ everyMs: 999 }, '999'],
    [{ everyMs: 1_500.5 }, '1500.5'],
    [{ everyMs: Number.NaN }, 'NaN'],
  ])('like %j is refused with what is wrong', (given, why) => {
    expect(() => checkTiming(given, now)).toThrow(
      expect.objectContaining({ code: 'invalid_input', message: expect.stringContaining(why) }),
    )
  })
})
