import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

const answer = async (said: string, known: object): Promise<string> => `${said} (${JSON.stringify(known)})`

// #region chat
const conversation = state({ version: 1, initial: () => ({ messages: [] as string[] }) })

const chat = workflow({ name: 'chat', state: conversation }, async (ctx, said: string) => {
  const { memory } = ctx
  const tone = await memory.session.get<string>('tone') // for an hour after it was used last
  const { allergies = {} } = await memory.of('alice').profile.get<{ allergies?: object }>() // for good
  const reply = await ctx.step('answer', async (step) => {
    const text = await answer(said, { tone, allergies })
    if (said.includes('nuts')) {
      await step.memory.of('alice').profile.merge({ allergies: { nuts: true } }, { why: said })
    }
    if (said.includes('briefly')) await step.memory.session.set('tone', 'brief')
    step.update((draft) => void draft.messages.push(said, text)) // the state: working memory
    return text
  })
  return reply
})
// #endregion

const hf = await open('sqlite:memory.db', { workflows: [chat] })
await hf.thread('alice-1').run(chat, 'no nuts please, and briefly')
assert.equal(await hf.thread('alice-1').run(chat, 'dinner?'), 'dinner? ({"tone":"brief","allergies":{"nuts":true}})')
assert.equal(await hf.thread('alice-2').run(chat, 'lunch?'), 'lunch? ({"allergies":{"nuts":true}})')

// #region outside
const { profile } = hf.memory.of('alice')
await profile.merge({ name: 'Alice', allergies: { milk: true } }, { by: 'support', why: 'she called' })
console.log(await profile.get()) // { allergies: { nuts: true, milk: true }, name: 'Alice' }
console.log(await profile.history({ limit: 1 })) // who changed what and why, the latest first

await hf.memory.session.of('alice-1').set('language', 'en', { ttlMs: 24 * 3_600_000 })
// #endregion
assert.deepEqual(await profile.get(), { allergies: { nuts: true, milk: true }, name: 'Alice' })
assert.equal(await hf.memory.session.of('alice-1').get('language'), 'en')
await hf.close()
