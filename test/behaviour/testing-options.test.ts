import { workflow } from 'holdfast'
import { checkRuns, createVirtualClock, explore, mockSteps, replayAll } from 'holdfast/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { codeOfRejection } from './runs.ts'

const work = workflow('work', async (ctx) => {
  await ctx.step('write', () => 1)
})

/** What is understood as something else, or as nothing, would make a test that tries less than it says. */
describe('options of holdfast/testing that are given wrong are refused', () => {
  test.each<[string, unknown]>([
    ['none', undefined],
    ['three crashes', { workflow: work, crashes: 3 }],
    ['a fault that there is not', { workflow: work, faults: ['power cut'] }],
    ['a store that can not be explored', { workflow: work, store: 'postgres://localhost/test' }],
    ['a person who says something else', { workflow: work, unsure: 'maybe' }],
    ['answers that are no names', { workflow: work, answers: ['yes'] }],
    ['fewer orders than none', { workflow: work, orders: -1 }],
    ['pairs that are no number', { workflow: work, pairs: '50' }],
    ['nothing in parallel', { workflow: work, concurrency: 0 }],
    ['a time limit before the start', { workflow: work, stuckMs: -1 }],
    ['a seed of another workflow', { workflow: work, only: 'crash before step_completed pay #1' }],
    ['what makes no workflow', { workflow: () => 'work' }],
  ])('explore: %s', async (_, options) => {
    expect(await codeOfRejection(explore(options as never))).toBe('invalid_input')
  })

  test('checkRuns and replayAll', async () => {
    const clock = createVirtualClock()
    onTestFinished(() => clock.close())
    const hf = await clock.open({ workflows: [work] })
    const wrong = [undefined, {}, { workflows: [] as unknown, sample: 0 }, { workflows: [work], sample: '5' }]
    const more = [
      { workflows: work },
      { workflows: ['work'] },
      { workflows: [work], states: [1] },
      { workflows: [work], concurrency: 0 },
    ]
    for (const options of [...wrong, ...more])
      expect(await codeOfRejection(checkRuns(hf, options as never))).toBe('invalid_input')
    for (const bundles of [undefined, {}, '{}', [null]])
      expect(await codeOfRejection(replayAll(bundles as never, { workflows: [work] }))).toBe('invalid_input')
  })

  test('mockSteps and the virtual clock', async () => {
    const invalid = expect.objectContaining({ code: 'invalid_input' })
    for (const mocks of [undefined, 1, [1]]) expect(() => mockSteps(work, mocks as never)).toThrow(invalid)
    expect(() => mockSteps({} as never, {})).toThrow(invalid)
    for (const startAt of ['today', Number.NaN]) expect(() => createVirtualClock(startAt as never)).toThrow(invalid)
    const clock = createVirtualClock()
    onTestFinished(() => clock.close())
    for (const ms of [undefined, Number.NaN, Number.POSITIVE_INFINITY, -1])
      expect(await codeOfRejection(clock.advance(ms as never))).toBe('invalid_input')
  })
})

test('a report says why the undisturbed run failed', async () => {
  const failing = workflow('failing', (ctx) =>
    ctx.step(
      'call',
      () => {
        throw new Error('no such order')
      },
      { retry: { attempts: 1 } },
    ),
  )
  const report = await explore({ workflow: failing })
  expect(report).toMatchObject({ ending: 'failed', error: 'no such order', failures: [] })
  expect(String(report)).toContain('Undisturbed the run is failed: no such order.')
})

test('a child whose workflow no process is opened with is named, and found once it is', async () => {
  const child = workflow('child', async (ctx) => {
    await ctx.sleep(3_600_000)
  })
  const parent = workflow('parent', async (ctx) => {
    await ctx.call(child)
  })
  const only = 'crash before timer_fired sleep #1 of run "explored/child#1"'
  const { failures } = await explore({ workflow: parent, stuckMs: 500, only })
  expect(failures.map(({ findings }) => findings.at(-1)?.message)).toEqual([
    expect.stringMatching(/does not have workflow "child"\. Name it in workflows, here and in open/),
  ])
  expect((await explore({ workflow: parent, workflows: [child], only })).failures).toEqual([])
})
