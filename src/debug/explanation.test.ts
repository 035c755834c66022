import { describe, expect, test } from 'vitest'
import { pauseReasons, type Run, runStatuses, waitReasons } from '../model/run.ts'
import { type AwaitedThing, Explanation, type RunFacts } from './explanation.ts'

const now = Date.parse('2026-11-18T03:00:00Z')
const base: Run = {
  ...{
    owner: '',
    id: 'r',
    threadId: 't',
    workflow: 'w',
    version: 2,
    status: 'running',
    reason: null,
    queue: 'default',
    priority: 0,
  },
  ...{
    fingerprint: '',
    epoch: 3,
    leaseId: 'l',
    leaseUntil: now + 5_000,
    leaseHolder: 'host-1',
    dueAt: null,
    claimsWithoutProgress: 0,
  },
  ...{ currentStep: 'load', inputSeq: 1, tapeSeq: 2, endSeq: null, createdAt: now - 9_000, startedAt: null, finishedAt: null },
}

function explain(run: Partial<Run>, facts: Partial<RunFacts> = {}): Explanation {
  return new Explanation({ run: { ...base, ...run }, now, waitsFor: [], reruns: [], requests: [], signals: [], ...facts })
}

const end = { at: now - 1_000, error: new Error('no luck'), by: 'ada' }
const finishedAt = now - 1_000
const free = { leaseHolder: null, leaseUntil: null }

describe('every status and reason has a sentence, a next, and what can be done', () => {
  const rows: [name: string, Explanation, why: string, next: string, at: number | null, calls: string[]][] = [
    [
      'pending',
      explain({ status: 'pending', ...free, dueAt: now - 9_000, tapeSeq: null }),
      'It is due at 2026-11-18T02:59:51.000Z, and no worker has taken it yet.',
      'A worker begins it.',
      now,
      ['run.pause()', 'run.cancel()'],
    ],
    [
      'pending, later',
      explain({ status: 'pending', ...free, dueAt: now + 7_200_000, tapeSeq: null }),
      'It was started with a delay, and is due 2026-11-18T05:00:00.000Z (in 2 h).',
      'A worker begins it.',
      now + 7_200_000,
      ['run.pause()', 'run.cancel()'],
    ],
    [
      'pending, begun',
      explain({ status: 'pending', ...free, dueAt: now }, { obstacle: 'Queue "q" is paused.' }),
      'It is to be continued, and no worker has taken it yet.',
      'Queue "q" is paused.',
      null,
      ['run.pause()', 'run.cancel()'],
    ],
    [
      'running',
      explain({}),
      'Worker host-1 executes step "load".',
      'Its worker continues.',
      null,
      ['run.pause()', 'run.cancel()'],
    ],
    [
      'running, lost',
      explain({ currentStep: null, leaseUntil: now - 3_000 }),
      'Worker host-1 is between two steps, and has not been heard of: its lease ran out 2026-11-18T02:59:57.000Z (3 s ago).',
      'The next worker that looks for work takes it over and continues from its last recorded result.',
      now,
      ['run.pause()', 'run.cancel()'],
    ],
    [
      'completed',
      explain({ status: 'completed', ...free, finishedAt }),
      'It completed at 2026-11-18T02:59:59.000Z.',
      'Nothing: it has ended.',
      null,
      ['run.rollback(checkpoint)'],
    ],
    [
      'failed',
      explain({ status: 'failed', ...free, finishedAt }, { end }),
      'It failed at 2026-11-18T02:59:59.000Z: no luck.',
      'Nothing, until it is retried or rolled back.',
      null,
      ['run.retry()', 'run.rollback(checkpoint)'],
    ],
    [
      'cancelled',
      explain({ status: 'cancelled', ...free, finishedAt }, { end: { at: finishedAt, by: 'ada' } }),
      'It was cancelled by ada at 2026-11-18T02:59:59.000Z.',
      'Nothing: it has ended.',
      null,
      [],
    ],
    ...waitReasons.map((reason): (typeof rows)[number] => {
      const awaited = samples[reason]
      const told = explain({ status: 'waiting', reason, ...free, dueAt: awaited.dueAt }, { waitsFor: [awaited.thing] })
      return [
        `waiting (${reason})`,
        told,
        awaited.why,
        awaited.next,
        awaited.dueAt,
        [...awaited.calls, 'run.pause()', 'run.cancel()'],
      ]
    }),
    ...pauseReasons.map((reason): (typeof rows)[number] => {
      const told = explain({ status: 'paused', reason, ...free }, { end })
      const why = `${pauses[reason].why} by ada at 2026-11-18T02:59:59.000Z: no luck.`
      return [`paused (${reason})`, told, why, 'Nothing, until it is resumed or cancelled.', null, pauses[reason].calls]
    }),
  ]

  test('the table has all of them', () => {
    const told = new Set(rows.map(([, { status, reason }]) => `${status} ${reason ?? ''}`.trim()))
    const all = runStatuses.flatMap((status) =>
      status === 'waiting'
        ? waitReasons.map((r) => `${status} ${r}`)
        : status === 'paused'
          ? pauseReasons.map((r) => `${status} ${r}`)
          : [status],
    )
    expect([...told].sort()).toEqual(all.sort())
  })

  test.each(rows)('%s', (name, told, why, next, at, calls) => {
    expect(told.why).toBe(why)
    expect(told.next).toEqual({ what: next, at })
    expect(told.actions.map(({ call }) => call)).toEqual(calls)
    expect(told.text).toContain(`Run "r" of workflow "w" version 2 is ${name.split(',')[0]}. ${why}`)
    for (const call of calls) expect(told.text).toContain(call)
    expect(String(told)).toBe(told.text)
  })

  test.each([...waitReasons])('waiting (%s), with nothing more on record', (reason) => {
    expect(explain({ status: 'waiting', reason, ...free }).why).toMatch(/^[A-Z].*\.$/)
    expect(explain({ status: 'waiting', reason, ...free }).next.what).toMatch(/^[A-Z].*\.$/)
  })
})

test('it tells who holds the run, what was asked of it, and why it was executed again', () => {
  const rerun = { why: 'resumed', at: now - 500, checkpoint: 't@7', by: 'ada', text: 'Resumed by ada.' } as const
  const told = explain({}, { requests: ['pause'], signals: ['go'], reruns: [rerun] })
  expect(told.holder).toEqual({ worker: 'host-1', leaseUntil: now + 5_000, isExpired: false })
  expect(told.text.split('\n')).toEqual([
    'Run "r" of workflow "w" version 2 is running. Worker host-1 executes step "load".',
    'It was asked to pause, and has not come to that yet.',
    'It has not taken these signals: "go".',
    'Next: Its worker continues.',
    'Executed again:',
    '  2026-11-18T02:59:59.500Z  Resumed by ada.',
    'What can be done:',
    '  run.pause()',
    '  run.cancel()',
  ])
})

interface Sample {
  readonly thing: AwaitedThing
  readonly dueAt: number | null
  readonly why: string
  readonly next: string
  readonly calls: readonly string[]
}

const inAMinute = now + 60_000
const samples: Readonly<Record<(typeof waitReasons)[number], Sample>> = {
  timer: {
    thing: { kind: 'timer', name: 'sleep', until: inAMinute },
    dueAt: inAMinute,
    why: 'It sleeps until 2026-11-18T03:01:00.000Z (in 60 s).',
    next: 'A worker takes it and continues it.',
    calls: [],
  },
  retry: {
    thing: { kind: 'retry', step: 'load', attempt: 3, until: inAMinute, error: new Error('busy') },
    dueAt: inAMinute,
    why: 'Step "load" has failed, last with: busy. Attempt 3 is due 2026-11-18T03:01:00.000Z (in 60 s).',
    next: 'A worker takes it, and step "load" makes attempt 3.',
    calls: [],
  },
  signal: {
    thing: { kind: 'signal', name: 'go', until: inAMinute },
    dueAt: inAMinute,
    why: 'It waits for signal "go", until 2026-11-18T03:01:00.000Z.',
    next: 'Its wait ends without an answer, and it continues with that.',
    calls: ['hf.signal("r", "go", value)'],
  },
  person: {
    thing: { kind: 'question', name: 'ok', id: 'ask_1', question: 'Send it?', to: 'ada' },
    dueAt: null,
    why: 'Its question "ok" to ada has not been answered.',
    next: 'Nothing, until what it waits for comes.',
    calls: ['hf.answer("r", "ok", value, { id: "ask_1" })'],
  },
  child: {
    thing: { kind: 'child', name: 'research', runId: 'c', status: 'paused' },
    dueAt: null,
    why: 'It waits for child "c", which is paused.',
    next: 'It continues when that has ended.',
    calls: ['hf.debug.explain("c")'],
  },
  effect: {
    thing: { kind: 'effect', key: 'pay:1', runId: 'other', status: 'unsure' },
    dueAt: null,
    why: 'The effect with key "pay:1" is open in run "other" (unsure).',
    next: 'It continues when that has ended.',
    calls: ['hf.debug.explain("other")'],
  },
}

const pauses: Readonly<Record<(typeof pauseReasons)[number], { readonly why: string; readonly calls: string[] }>> = {
  asked: { why: 'It was paused', calls: ['run.resume()', 'run.cancel()', 'run.rollback(checkpoint)'] },
  retries: { why: 'A step of it ran out of attempts', calls: ['run.resume()', 'run.cancel()', 'run.rollback(checkpoint)'] },
  budget: { why: 'It is past its budget', calls: ['run.resume({ budget })', 'run.cancel()', 'run.rollback(checkpoint)'] },
  undo: { why: 'An undo of it failed, or could not be found', calls: ['run.resume()', 'run.cancel({ undo: false })'] },
  poisoned: { why: 'Its workers died again and again without a result', calls: ['run.resume()', 'run.cancel()'] },
  mismatch: {
    why: 'Its code no longer does what its log says',
    calls: ['run.resume()', 'run.cancel()', 'run.rollback(checkpoint)'],
  },
}
