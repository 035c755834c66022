import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { QuietTime } from './quiet-time.ts'
import { QuietTimes } from './quiet-times.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function begin(times: QuietTimes, over: string[], name: string, options: { isLimited?: boolean; isInternal?: boolean } = {}) {
  const quiet = new QuietTime({
    times,
    isLimited: false,
    isInternal: false,
    ...options,
    onOver: () => over.push(name),
    onBroken: () => {},
  })
  quiet.heard()
  return quiet
}

it('one timer ends the quiet times of all', () => {
  const times = new QuietTimes({ quietMs: 1_000, most: 10_000 })
  const over: string[] = []
  for (let n = 0; n < 1_000; n++) begin(times, over, `${n}`).begin()
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(500)
  begin(times, over, 'later').begin()
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(501)
  expect(over).toHaveLength(1_000)
  vi.advanceTimersByTime(500)
  expect(over.at(-1)).toBe('later')
  expect(vi.getTimerCount()).toBe(0)
})

it('work ends a quiet time, and does not begin it anew; what the function does, does', () => {
  const times = new QuietTimes({ quietMs: 1_000, most: 10_000 })
  const over: string[] = []
  const quiet = begin(times, over, 'a')
  quiet.begin()
  vi.advanceTimersByTime(900)
  quiet.work()
  expect(vi.getTimerCount()).toBe(0)
  expect(quiet.isOver).toBe(false)
  quiet.begin()
  vi.advanceTimersByTime(101)
  expect(over).toEqual(['a'])
  quiet.heard()
  expect(quiet.isOver).toBe(false)
})

it('past so many the ones that are over next end early', () => {
  const times = new QuietTimes({ quietMs: 1_000, most: 100 })
  const over: string[] = []
  const patient = begin(times, over, 'patient')
  patient.raise(4_000)
  patient.begin()
  for (let n = 1; n <= 100; n++) begin(times, over, `${n}`).begin()
  expect(over).toHaveLength(10)
  expect(over).not.toContain('patient')
})

it('it is twice as long for the next holder, up to a minute; none has an internal workflow', () => {
  const times = new QuietTimes({ quietMs: 20, most: 100 })
  const quiet = begin(times, [], 'a')
  expect(quiet.longerMs).toBe(40)
  quiet.raise(40_000)
  expect(quiet.longerMs).toBe(60_000)
  const limited = begin(times, [], 'limited', { isLimited: true })
  expect([limited.isOver, limited.longerMs]).toEqual([true, 20])
  limited.raise(20)
  expect([limited.isOver, limited.longerMs]).toEqual([false, 40])
  const internal = begin(times, [], 'internal', { isInternal: true })
  internal.raise(40_000)
  expect(internal.isOver).toBe(true)
})

it('the place is given up in a quiet time and taken again with the first work, unless the queue has a limit', () => {
  const times = new QuietTimes({ quietMs: 1_000, most: 100 })
  const places: string[] = []
  const make = (name: string, isLimited: boolean) => {
    const quiet = begin(times, [], name, { isLimited })
    quiet.onPlace = (isNeeded) => places.push(`${name} ${isNeeded}`)
    quiet.raise(2_000)
    return quiet
  }
  const free = make('free', false)
  const limited = make('limited', true)
  for (const quiet of [free, limited]) {
    quiet.begin()
    vi.advanceTimersByTime(2_500)
    quiet.work()
    quiet.work()
  }
  expect(places).toEqual(['free false', 'free true'])
})
