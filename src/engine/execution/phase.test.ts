import { describe, expect, it } from 'vitest'
import type { Order } from '../replay/tape.ts'
import { Phase, type Stop } from './phase.ts'

const pause: Stop = { kind: 'pause', reason: 'asked', data: {} }
const release: Stop = { kind: 'release' }
const reload: Stop = { kind: 'reload' }
const cancel: Order = { kind: 'cancel', by: undefined }
const rollback: Order = { kind: 'rollback', to: 3, by: undefined }
const failure: Order = { kind: 'fail', error: new Error('no'), failed: [] }

function live(): Phase {
  const phase = new Phase()
  phase.wentLive()
  return phase
}

describe('the phase of an execution', () => {
  it('is open once the tape is consumed, until something asks the run to stop', () => {
    const phase = new Phase()
    expect([phase.isOpen, phase.isStopping]).toEqual([false, false])
    expect(phase.wentLive()).toBe(null)
    expect([phase.isOpen, phase.isStopping]).toEqual([true, false])
    expect(phase.request(pause)).toBe(true)
    expect([phase.isOpen, phase.isStopping, phase.stop]).toEqual([false, true, pause])
  })

  it('keeps a stop and an order that come before the tape is consumed', () => {
    const phase = new Phase()
    phase.request(pause)
    expect(phase.keep(cancel)).toBe(true)
    expect([phase.stop, phase.order, phase.isCancelled]).toEqual([pause, cancel, false])
    expect(phase.wentLive()).toBe(cancel)
    expect([phase.stop, phase.isOpen]).toEqual([pause, false])
    expect(phase.keep(cancel)).toBe(false)
  })

  it.each([
    ['a release after a pause', pause, release, false],
    ['a release after a reload', reload, release, true],
    ['a pause after a release', release, pause, true],
    ['a pause after a rollback', { kind: 'rollback', order: rollback } as const, pause, false],
    ['a rollback after a pause', pause, { kind: 'rollback', order: rollback } as const, true],
    [
      'anything after a cancel',
      { kind: 'cancel', order: cancel } as const,
      { kind: 'rollback', order: rollback } as const,
      false,
    ],
  ])('says whether %s counts', (_, first, second, counts) => {
    const phase = live()
    expect(phase.request(first)).toBe(true)
    expect(phase.request(second)).toBe(counts)
    expect(phase.stop).toEqual(counts ? second : first)
  })

  it('hands a run back that was resumed before it came to its pause; other stops stay', () => {
    const phase = live()
    phase.request(pause)
    phase.takeBackPause()
    expect(phase.stop).toEqual(release)
    phase.request({ kind: 'pause', reason: 'retries', data: {} })
    phase.takeBackPause()
    expect(phase.stop).toMatchObject({ reason: 'retries' })
  })

  it('throws into the function of a cancelled run, also after its end', () => {
    const phase = live()
    phase.cancel(cancel)
    expect([phase.isCancelled, phase.isTakenAway, phase.isAborted]).toEqual([true, true, true])
    expect(phase.unwind(cancel)).toBe(true)
    phase.end('cancelled')
    expect([phase.isTakenAway, phase.isDetached, phase.isOver]).toEqual([true, false, true])
  })

  it('is unwound once; an order that ranks higher overrules', () => {
    const phase = live()
    expect(phase.unwind(failure)).toBe(true)
    expect(phase.unwind(cancel)).toBe(false)
    expect([phase.isAborted, phase.isTakenAway, phase.overruledBy]).toEqual([true, false, null])
    phase.overrule(cancel)
    expect([phase.order, phase.overruledBy]).toEqual([failure, cancel])
    expect(phase.request(pause)).toBe(false)
  })

  it('is detached once the run continues without it, and remembers that it was suspended', () => {
    const phase = live()
    phase.end('waiting', { isSuspended: true })
    expect([phase.isDetached, phase.isSuspended, phase.isAborted, phase.isOver]).toEqual([true, true, false, false])
    // The commit was refused after all.
    phase.end('lost')
    expect([phase.endedAs, phase.isDetached, phase.isSuspended]).toEqual(['lost', true, true])
    expect(phase.lose()).toBe(false)
  })

  it('stays lost', () => {
    const phase = live()
    expect(phase.lose()).toBe(true)
    phase.end('lost')
    expect([phase.isLost, phase.isTakenAway, phase.isDetached, phase.hasEnded]).toEqual([true, true, false, true])
  })
})
