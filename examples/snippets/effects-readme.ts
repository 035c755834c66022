import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const sent: string[] = []
const mailer = {
  send: async (mail: { to: string; key: string }) => {
    sent.push(mail.key)
    return { id: `m${sent.length}` }
  },
  find: async (key: string) => (sent.includes(key) ? { id: `m${sent.indexOf(key) + 1}` } : undefined),
}

// #region effect
const remind = workflow('remind', async (ctx, input: { to: string; invoice: string }) => {
  return await ctx.once('send', {
    key: `reminder:${input.invoice}`, // one key is one mail, in this run and in every other
    run: (key) => mailer.send({ to: input.to, key }), // its intent is on disk before this is called
    check: async (key) => {
      const mail = await mailer.find(key) // asked when a crash, an error or a time-out hid what happened
      return mail === undefined ? { happened: false } : { happened: true, result: mail }
    },
  })
})
// #endregion

const hf = await open('memory:', { workflows: [remind] })
const input = { to: 'alice@example.com', invoice: 'i-17' }
assert.deepEqual(await hf.run(remind, input), { id: 'm1' })
assert.deepEqual(await hf.run(remind, input), { id: 'm1' })
assert.deepEqual(sent, ['reminder:i-17'])
await hf.close()
