import { describe, expect, test } from 'vitest'
import type { EventType, LogRecord } from '../model/event.ts'
import { isAskedFor, shownRecord } from './log-query.ts'

const thread = { owner: '', threadId: 't' }

function record(type: EventType, fields: Partial<LogRecord> = {}): LogRecord {
  return {
    ...{ seq: 1, runId: 'r', type, step: null, count: 0, attempt: 0, at: 0, durationMs: null, isCheckpoint: true },
    ...{ payload: 'p', patch: 'd', ...fields },
  }
}

describe('a record is asked for', () => {
  test('by its run, or by an edit of another run where edits are asked for', () => {
    const asked = { ...thread, runId: 'r' }
    expect(isAskedFor({ runId: 'r', type: 'step_completed' }, false, asked)).toBe(true)
    expect(isAskedFor({ runId: 'other', type: 'state_updated' }, true, asked)).toBe(false)
    expect(isAskedFor({ runId: 'other', type: 'state_updated' }, true, { ...asked, withEdits: true })).toBe(true)
    expect(isAskedFor({ runId: 'other', type: 'step_completed' }, false, { ...asked, withEdits: true })).toBe(false)
  })

  test('by its type and by its patch', () => {
    expect(isAskedFor({ runId: 'r', type: 'step_completed' }, true, { ...thread, types: ['run_started'] })).toBe(false)
    expect(isAskedFor({ runId: 'r', type: 'step_completed' }, false, { ...thread, patchesOnly: true })).toBe(false)
    expect(isAskedFor({ runId: 'r', type: 'step_completed' }, true, { ...thread, patchesOnly: true })).toBe(true)
  })
})

describe('a record is shown', () => {
  test('as it is, the same object', () => {
    const whole = record('step_completed')
    expect(shownRecord(whole, thread)).toBe(whole)
  })

  test('without its payload where it is of another run or only patches are asked for, unless it migrated the state', () => {
    expect(shownRecord(record('state_updated'), { ...thread, runId: 'other', withEdits: true })).toMatchObject({
      payload: null,
      patch: 'd',
    })
    expect(shownRecord(record('state_updated'), { ...thread, patchesOnly: true })).toMatchObject({ payload: null, patch: 'd' })
    expect(shownRecord(record('state_migrated'), { ...thread, patchesOnly: true })).toMatchObject({ payload: 'p', patch: 'd' })
  })

  test('without payload and patch where it is bare, but for the payloads that are asked for', () => {
    expect(shownRecord(record('step_completed'), { ...thread, bare: true })).toMatchObject({ payload: null, patch: null })
    const query = { ...thread, payloadsOf: ['run_completed' as const] }
    expect(shownRecord(record('step_completed'), query)).toMatchObject({ payload: null, patch: null })
    expect(shownRecord(record('run_completed'), query)).toMatchObject({ payload: 'p', patch: null })
  })
})
