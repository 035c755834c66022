import { expect, it } from 'vitest'
import { RunInbox } from './run-inbox.ts'
import { SignalWaiters } from './signal-waiters.ts'

it('a signal whose call is over before it takes it wakes the next one', () => {
  const inbox = new RunInbox()
  const waiters = new SignalWaiters(inbox)
  const woken: string[] = []
  const waiter = (called: string) => ({ names: ['go'], isOver: false, wake: () => void woken.push(called) })
  const outer = waiter('outer')
  const inner = waiter('inner')
  waiters.add(outer)
  waiters.add(inner)
  const { signals } = inbox.takeIn([{ id: 1, owner: '', runId: 'r', kind: 'signal', name: 'go', payload: null, at: 0 }])
  waiters.wakeFor(signals)
  expect(woken).toEqual(['inner'])
  inner.isOver = true
  expect(waiters.take(inner)).toBeUndefined()
  expect(woken).toEqual(['inner', 'outer'])
  expect(waiters.take(outer)).toMatchObject({ id: 1 })
})
