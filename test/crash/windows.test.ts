import { afterAll, beforeAll, expect, test } from 'vitest'
import { Stage } from './stage.ts'
import { type CrashWindow, type WindowClass, type WindowOutcome, walkWindows } from './windows.ts'
import { operationCount } from './workflows.ts'

// failure-model 2.3: five operations of each class, killed with SIGKILL in each crash window.

let stage: Stage
let outcomes: WindowOutcome[] = []

beforeAll(async () => {
  stage = await Stage.build()
  outcomes = await walkWindows(stage)
  console.log(`crash windows: ${stage.killCount} SIGKILLs`)
}, 240_000)
afterAll(() => stage.close())

const every = operationCount
const nothing = { duplicated: 0, missing: 0, unsure: { happened: 0, not: 0 }, viaCheck: 0 }

test('every operation of every class was killed once in every window, and no rule was broken', () => {
  expect(outcomes.flatMap(({ broken }) => broken)).toEqual([])
  expect(
    outcomes.map(({ class: of, window, kills }) => `${of} ${window} ${kills}`).filter((line) => !line.endsWith(` ${every}`)),
  ).toEqual([])
})

test('a plain step that calls the provider happens twice when it is killed between the answer and the record, and only then', () => {
  expect(summaryOf('step')).toEqual({
    ...{ W0: { ...nothing, calls: every }, W2: { ...nothing, calls: 2 * every } },
    ...{ W3: { ...nothing, calls: 2 * every, duplicated: every }, W4: { ...nothing, calls: 2 * every, duplicated: every } },
    ...{ W5: { ...nothing, calls: every }, W6: { ...nothing, calls: every } },
  })
})

test('an idempotent effect is sent again under the same key, and happens once', () => {
  const [once, twice] = [
    { ...nothing, calls: every },
    { ...nothing, calls: 2 * every },
  ]
  expect(summaryOf('idempotent')).toEqual({ W0: once, W1: once, W2: twice, W3: twice, W4: twice, W5: once, W6: once })
})

test('an effect with a check is looked up first, and never sent again if it happened', () => {
  const once = { ...nothing, calls: every }
  const lookedUp = { ...once, viaCheck: every }
  expect(summaryOf('check')).toEqual({
    W0: once,
    W1: once,
    W2: { ...nothing, calls: 2 * every },
    W3: lookedUp,
    W4: lookedUp,
    W5: once,
    W6: once,
  })
})

test('an effect with neither becomes unsure when a crash hides its outcome, and happens once after a person has decided', () => {
  const once = { ...nothing, calls: every }
  const hasNotHappened = { happened: 0, not: every }
  const hasHappened = { ...once, unsure: { happened: every, not: 0 } }
  expect(summaryOf('neither')).toEqual({
    ...{ W0: once, W1: { ...once, unsure: hasNotHappened }, W2: { ...nothing, calls: 2 * every, unsure: hasNotHappened } },
    ...{ W3: hasHappened, W4: hasHappened, W5: once, W6: once },
  })
})

test('the numbers of the failure model: over 25 boundaries 5 duplicates at least once, none idempotent, 15 unknown (10 + 5) at most once', () => {
  const boundaries: CrashWindow[] = ['W0', 'W1', 'W2', 'W3', 'W5']
  const ofClass = (of: WindowClass) => outcomes.filter((outcome) => outcome.class === of && boundaries.includes(outcome.window))
  const sum = (of: WindowClass, count: (outcome: WindowOutcome) => number) =>
    ofClass(of).reduce((total, outcome) => total + count(outcome), 0)
  expect(sum('step', ({ duplicated }) => duplicated)).toBe(5)
  expect([sum('idempotent', ({ duplicated }) => duplicated), sum('idempotent', ({ missing }) => missing)]).toEqual([0, 0])
  expect(sum('neither', ({ kills }) => kills)).toBe(25)
  expect(sum('neither', ({ duplicated }) => duplicated)).toBe(0)
  expect([sum('neither', ({ unsure }) => unsure.not), sum('neither', ({ unsure }) => unsure.happened)]).toEqual([10, 5])
})

function summaryOf(of: WindowClass) {
  const ofClass = outcomes.filter((outcome) => outcome.class === of)
  return Object.fromEntries(
    ofClass.map(({ window, calls, duplicated, missing, unsure, viaCheck }) => [
      window,
      { calls, duplicated, missing, unsure, viaCheck },
    ]),
  )
}
