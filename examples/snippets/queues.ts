import assert from 'node:assert/strict'
import { HoldfastError, open, workflow } from 'holdfast'

const sent: string[] = []
const mail = workflow({ name: 'mail', queue: 'mails' }, (ctx, to: string) => ctx.step('send', () => void sent.push(to)))

// #region worker
const hf = await open('memory:', {
  workflows: [mail],
  worker: { concurrency: 100, queues: { mails: 5, default: 50 } }, // at most 5 mails at once in this process
})
// #endregion

// #region settings
await hf.queues.set('mails', {
  concurrency: 20, // run at the same time, over all processes
  rateLimit: { count: 100, perMs: 60_000 }, // started in any minute, over all processes
  maxQueued: 10_000, // a start beyond is refused
})
// #endregion

// #region start-many
const customers = ['ann@example.com', 'bob@example.com', 'eve@example.com']
const runs = await hf.startMany(customers.map((to) => ({ workflow: mail, input: to, options: { id: `welcome-${to}` } })))
// #endregion
assert.equal(runs.length, 3)

// #region drain
await hf.queues.drain('mails', { timeoutMs: 60_000, onProgress: ({ pending }) => console.log(`${pending} mails to go`) })
// #endregion
assert.deepEqual(sent.toSorted(), customers)

// #region pause
await hf.queues.pause('mails') // no more of its runs begin; running ones continue
await hf.start(mail, 'tom@example.com')
console.log(await hf.queues.get('mails')) // { name: 'mails', isPaused: true, counts: { pending: 1, … }, … }
await hf.queues.resume('mails')
// #endregion
await hf.queues.drain('mails')
assert.equal(sent.at(-1), 'tom@example.com')

// #region full
await hf.queues.set('exports', { maxQueued: 0 })
await hf.start(mail, 'ann@example.com', { id: 'export-7', queue: 'exports' }).catch((error) => {
  if (!(error instanceof HoldfastError) || error.code !== 'queue_full') throw error
  console.log(error.message) // tell the caller to come back: nothing was started, and the same id may be used again
})
// #endregion
await assert.rejects(hf.start(mail, 'ann@example.com', { queue: 'exports' }), { code: 'queue_full' })
await hf.close()
