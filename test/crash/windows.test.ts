import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onDurableStores } from './bed/on-every-durable-store.ts'
import { type CrashWindow, type WindowClass, type WindowOutcome, walkWindows } from './crash-windows.ts'
import { operationCount } from './workflows/crash-window-workflows.ts'

// failure-model 2.3: five operations of each class, killed with SIGKILL in each crash window. On every store in npm run torture.

const every = operationCount
const limitMs = patience(120_000)
const nothing = { duplicated: 0, missing: 0, unsure: { happened: 0, not: 0 }, viaCheck: 0 }

onDurableStores(['sqlite'], (on) => {
  const walked = new Map<WindowClass, Promise<WindowOutcome[]>>()

  test('a plain step that calls the provider happens twice when it is killed between the answer and the record, and only then', {
    timeout: limitMs,
  }, async () => {
    expect(await summaryOf('step')).toEqual({
      ...{ W0: { ...nothing, calls: every }, W2: { ...nothing, calls: 2 * every } },
      ...{ W3: { ...nothing, calls: 2 * every, duplicated: every }, W4: { ...nothing, calls: 2 * every, duplicated: every } },
      ...{ W5: { ...nothing, calls: every }, W6: { ...nothing, calls: every } },
    })
  })

  test('an idempotent effect is sent again under the same key, and happens once', { timeout: limitMs }, async () => {
    const [once, twice] = [
      { ...nothing, calls: every },
      { ...nothing, calls: 2 * every },
    ]
    expect(await summaryOf('idempotent')).toEqual({ W0: once, W1: once, W2: twice, W3: twice, W4: twice, W5: once, W6: once })
  })

  test('an effect with a check is looked up first, and never sent again if it happened', { timeout: limitMs }, async () => {
    const once = { ...nothing, calls: every }
    const lookedUp = { ...once, viaCheck: every }
    expect(await summaryOf('check')).toEqual({
      W0: once,
      W1: once,
      W2: { ...nothing, calls: 2 * every },
      W3: lookedUp,
      W4: lookedUp,
      W5: once,
      W6: once,
    })
  })

  test('an effect with neither becomes unsure when a crash hides its outcome, and happens once after a person has decided', {
    timeout: limitMs,
  }, async () => {
    const once = { ...nothing, calls: every }
    const hasNotHappened = { happened: 0, not: every }
    const hasHappened = { ...once, unsure: { happened: every, not: 0 } }
    expect(await summaryOf('neither')).toEqual({
      ...{ W0: once, W1: { ...once, unsure: hasNotHappened }, W2: { ...nothing, calls: 2 * every, unsure: hasNotHappened } },
      ...{ W3: hasHappened, W4: hasHappened, W5: once, W6: once },
    })
  })

  test('the numbers of the failure model: over 25 boundaries 5 duplicates at least once, none idempotent, 15 unknown (10 + 5) at most once', {
    timeout: 4 * limitMs,
  }, async () => {
    const boundaries: CrashWindow[] = ['W0', 'W1', 'W2', 'W3', 'W5']
    const sum = async (of: WindowClass, count: (outcome: WindowOutcome) => number) =>
      (await outcomesOf(of))
        .filter(({ window }) => boundaries.includes(window))
        .reduce((total, outcome) => total + count(outcome), 0)
    expect(await sum('step', ({ duplicated }) => duplicated)).toBe(5)
    expect([await sum('idempotent', ({ duplicated }) => duplicated), await sum('idempotent', ({ missing }) => missing)]).toEqual([
      0, 0,
    ])
    expect(await sum('neither', ({ killCount }) => killCount)).toBe(25)
    expect(await sum('neither', ({ duplicated }) => duplicated)).toBe(0)
    expect([await sum('neither', ({ unsure }) => unsure.not), await sum('neither', ({ unsure }) => unsure.happened)]).toEqual([
      10, 5,
    ])
  })

  /** Each class is walked once, for whoever asks first. */
  function outcomesOf(of: WindowClass): Promise<WindowOutcome[]> {
    const outcomes = walked.get(of) ?? walkWindows(on.bed, of)
    walked.set(of, outcomes)
    return outcomes
  }

  /** By window; every operation was killed once in it, and no rule was violations. */
  async function summaryOf(of: WindowClass) {
    const outcomes = await outcomesOf(of)
    expect(outcomes.flatMap(({ violations }) => violations)).toEqual([])
    expect(outcomes.map(({ window, killCount }) => [window, killCount])).toEqual(outcomes.map(({ window }) => [window, every]))
    return Object.fromEntries(
      outcomes.map(({ window, calls, duplicated, missing, unsure, viaCheck }) => [
        window,
        { calls, duplicated, missing, unsure, viaCheck },
      ]),
    )
  }
})
