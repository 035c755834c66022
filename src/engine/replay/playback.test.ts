import { afterEach, describe, expect, it, vi } from 'vitest'
import { Playback } from './playback.ts'
import type { Outcome } from './tape.ts'

afterEach(() => {
  vi.useRealTimers()
})

function recorded(seq: number, name: string, more: Partial<Outcome> = {}): Outcome {
  return { key: `step:${name}#1`, seq, at: seq * 1_000, payload: null, isFailure: false, patchCount: 0, ...more }
}

function play(
  outcomes: Outcome[],
  { begun = {}, isAtWork = () => false }: { begun?: Record<string, number>; isAtWork?: () => boolean } = {},
) {
  const seen: string[] = []
  const mismatches: { recorded: string[]; asked: string[] }[] = []
  const playback = new Playback({
    outcomes,
    onResult: ({ key }) => void seen.push(key.slice(5, -2)),
    onLive: () => void seen.push('live'),
    onMismatch: (recordedKeys, asked) => void mismatches.push({ recorded: recordedKeys, asked }),
    isAtWork,
    begunAt: (key) => begun[key.slice(5, -2)],
    startedAt: 0,
  })
  playback.start()
  return { playback, seen, mismatches }
}

const turns = async (count: number) => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve))
}

describe('recorded results', () => {
  it('are handed out by their position, optional and required ones together (P3)', async () => {
    const { playback, seen } = play([
      recorded(3, 'first'),
      recorded(4, 'fast', { isOptional: true }),
      recorded(6, 'middle'),
      recorded(7, 'slow', { isOptional: true }),
      recorded(9, 'last'),
    ])
    for (const name of ['slow', 'last', 'fast', 'middle', 'first']) void playback.take(`step:${name}#1`)
    await turns(10)
    expect(seen).toEqual(['first', 'fast', 'middle', 'slow', 'last', 'live'])
  })

  it('are handed out by their position beside the beginnings that are asked for', async () => {
    const { playback, seen } = play([recorded(3, 'first'), recorded(6, 'last')])
    for (const name of ['last', 'first']) void playback.take(`step:${name}#1`)
    void playback.turnOfBeginning('step:begun#1', 5)
    await turns(6)
    expect(seen).toEqual(['first', 'begun', 'last', 'live'])
  })

  it('that may be inside a begun step are not waited for if no call asks for them', async () => {
    const { playback, seen, mismatches } = play([recorded(3, 'inside')], { begun: { begun: 2 } })
    await playback.turnOfBeginning('step:begun#1', 5)
    void playback.take('step:inside#1')
    await turns(4)
    expect(seen).toEqual(['inside', 'live'])
    expect(mismatches).toEqual([])
  })

  it('that are optional keep no call waiting, and come when they are asked for', async () => {
    const { playback, seen } = play([recorded(3, 'first'), recorded(4, 'optional', { isOptional: true })])
    void playback.take('step:first#1')
    await turns(5)
    expect(seen).toEqual(['first', 'live'])
    expect(playback.isHandingOut).toBe(false)
    void playback.take('step:optional#1')
    expect(playback.isHandingOut).toBe(true)
    const isIdle = playback.idle().then(() => seen.push('idle'))
    await turns(1)
    // The result was handed out, and what comes after it has not continued yet.
    expect([playback.isHandingOut, playback.isAwaited]).toEqual([false, true])
    await isIdle
    expect(playback.isAwaited).toBe(false)
    expect(seen).toEqual(['first', 'live', 'optional', 'idle'])
  })

  it('that were taken before their turn come after the optional ones before them that are asked for (P3)', async () => {
    const { playback } = play(
      [recorded(3, 'inside'), recorded(4, 'kept', { isOptional: true }), recorded(6, 'begun', { isFailure: true })],
      { begun: { begun: 2 } },
    )
    const order: string[] = []
    void playback.take('step:kept#1').then(() => order.push('kept'))
    const { outcome, isInTurn } = await playback.takeFailure('step:begun#1')
    expect(isInTurn).toBe(false)
    await playback.take('step:inside#1')
    await playback.turnOf(outcome)
    order.push('begun')
    expect(order).toEqual(['kept', 'begun'])
  })

  it('can be taken before their turn by a caller that does not wait for them', async () => {
    const { playback, seen } = play([recorded(3, 'inner'), recorded(4, 'outer')])
    playback.takeAtOnce('step:outer#1')
    void playback.take('step:inner#1')
    await turns(5)
    expect(seen).toEqual(['outer', 'inner', 'live'])
  })
})

describe('a function that does not ask for the next result', () => {
  const waitFor = async (ms: number) => vi.advanceTimersByTimeAsync(ms)

  it('and asks for something that the log does not have there differs from it after five seconds', async () => {
    vi.useFakeTimers()
    const { playback, mismatches } = play([recorded(3, 'a'), recorded(5, 'b')], { begun: { a: 2, b: 4 } })
    void playback.take('step:b#1').catch(() => {})
    await waitFor(4_900)
    expect(mismatches).toEqual([])
    await waitFor(200)
    expect(mismatches).toEqual([{ recorded: ['step:a#1', 'step:b#1'], asked: ['step:b#1'] }])
  })

  it('has longer if all waiting calls were in progress when that result was recorded: as long as it took then, and more', async () => {
    vi.useFakeTimers()
    const { playback, mismatches } = play([recorded(3, 'a'), recorded(103, 'b')], { begun: { a: 1, b: 2, beside: 2 } })
    void playback.take('step:a#1')
    playback.untilLive('step:beside#1').catch(() => {})
    await waitFor(400_000)
    expect(mismatches).toEqual([])
    await waitFor(200_000)
    expect(mismatches).toHaveLength(1)
  })

  it.each([
    ['at once after the result before it', { at: 5_020, durationMs: 2_015 }, 5_200, 5_400],
    ['at once, while a step beside it was running', { at: 5_020, durationMs: 5_015 }, 5_200, 5_400],
    ['after a while', { at: 9_000, durationMs: 2_000 }, 60_000, 90_000],
  ])('and waits for a signal has a time by how soon it asked then: %s', async (_, head, none, one) => {
    vi.useFakeTimers()
    const { playback, mismatches } = play([recorded(3, 'a'), recorded(5, 'b', head)])
    void playback.take('step:a#1')
    await waitFor(10)
    playback.untilLive('signal:go#1').catch(() => {})
    await waitFor(none)
    expect(mismatches).toEqual([])
    await waitFor(one - none)
    expect(mismatches).toEqual([{ recorded: ['step:b#1'], asked: ['signal:go#1'] }])
  })

  it('and is known to be at work is waited for', async () => {
    vi.useFakeTimers()
    let isAtWork = true
    const { playback, mismatches } = play([recorded(3, 'a')], { isAtWork: () => isAtWork })
    playback.untilLive('step:new#1').catch(() => {})
    await waitFor(3_600_000)
    expect(mismatches).toEqual([])
    isAtWork = false
    await waitFor(5_001)
    expect(mismatches).toHaveLength(1)
  })
})
