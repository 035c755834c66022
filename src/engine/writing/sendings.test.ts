import { expect, it } from 'vitest'
import { Sendings } from './sendings.ts'

it('keeps what is sent for a run of one owner, and not that of a run with the same id of another', async () => {
  const sendings = new Sendings()
  const failing = async () => {
    throw new Error('not yet')
  }
  const [a, b] = ['a', 'b'].map((owner) => sendings.send(owner, 'key', 'run', failing))
  sendings.keep({ owner: 'b', runId: 'run' })
  await expect(a).rejects.toThrow()
  await expect(b).rejects.toThrow()
  expect(sendings.has('a', 'key')).toBe(false)
  expect(sendings.has('b', 'key')).toBe(true)
  sendings.letGo({ owner: 'a', runId: 'run' })
  expect(sendings.has('b', 'key')).toBe(true)
  sendings.letGo({ owner: 'b', runId: 'run' })
  expect(sendings.has('b', 'key')).toBe(false)
})
