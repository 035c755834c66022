import { describe, expect, it } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { wrapStore } from '../../src/testing/faulty-store.ts'
import { claimRequest, createAndClaim, creating, stepping } from '../stores/sqlite-scene.ts'
import { makeMortal } from './mortal-store.ts'
import { gate } from './runs.ts'

/** A store whose commits are carried out and answered only when they are released, and what it is asked. */
function slowlyAnswering() {
  const written = gate()
  const answer = gate<Error | undefined>()
  const acts: string[] = []
  const base = createMemoryStore({ clockOffsetMs: () => 0 })
  const store = (): Store =>
    wrapStore(base, {
      before: (act) => void acts.push(act),
      after: async (act) => {
        if (act !== 'commit') return
        written.open()
        const error = await answer.promise
        if (error !== undefined) throw error
      },
    })
  return { base, store, written, answer, acts }
}

const pending = Symbol('pending')
const now = <T>(promise: Promise<T>) => Promise.race([promise, new Promise((resolve) => setImmediate(() => resolve(pending)))])

describe('a process that dies after a write', () => {
  it('sends nothing from then on, although the answer has not come and others see what it wrote', async () => {
    const { base, store, written, answer, acts } = slowlyAnswering()
    const claim = await createAndClaim(base, 'r')
    await base.commit([creating('next')])
    const mortal = makeMortal(store(), { after: 'step_completed' })
    const write = mortal.store.commit([stepping(claim)])
    await written.promise
    const claiming = mortal.store.claim(claimRequest())
    expect(await now(claiming)).toBe(pending)
    answer.open(undefined)
    await mortal.dead
    expect(await now(Promise.race([write, claiming]))).toBe(pending)
    expect(acts).toEqual(['commit'])
    mortal.bury()
    await expect(write).rejects.toThrow('dead')
    await expect(claiming).rejects.toThrow('dead')
    expect((await base.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['next'])
  })

  it('hears nothing from then on of what it had asked before', async () => {
    const { base, store, written, answer } = slowlyAnswering()
    const claim = await createAndClaim(base, 'r')
    const read = gate()
    const slow = wrapStore(store(), { after: (act) => (act === 'now' ? read.promise : undefined) })
    const mortal = makeMortal(slow, { after: 'step_completed' })
    const asked = mortal.store.now()
    const write = mortal.store.commit([stepping(claim)])
    await written.promise
    answer.open(undefined)
    expect(await now(mortal.dead)).toBe(pending)
    read.open()
    await mortal.dead
    expect(await now(asked)).toBe(pending)
    mortal.bury()
    await expect(Promise.any([asked, write])).rejects.toThrow()
  })

  it('lives on if that write fails', async () => {
    const { base, store, written, answer } = slowlyAnswering()
    const claim = await createAndClaim(base, 'r')
    const mortal = makeMortal(store(), { after: 'step_completed' })
    const write = mortal.store.commit([stepping(claim)])
    await written.promise
    const reading = mortal.store.readRun({ owner: '', runId: 'r' })
    answer.open(new Error('lost'))
    await expect(write).rejects.toThrow('lost')
    expect((await reading)?.id).toBe('r')
  })
})
