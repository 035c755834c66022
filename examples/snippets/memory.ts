import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

async function embed(texts: string[]): Promise<number[][]> {
  return texts.map((text) => [1, /tea|beverage/i.test(text) ? 5 : 0])
}

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

// #region facts
const concierge = workflow('concierge', async (ctx, said: string) => {
  const alice = ctx.memory.of('alice')
  const facts = await alice.recall(said, { limit: 5 }) // recorded: a replay sees what it saw
  return await ctx.step('answer', async ({ memory }) => {
    const { remember } = memory.of('alice') // committed with the step's result
    await remember('Alice lives in Berlin', { kind: 'address', tags: ['home'], trust: 'stated', why: said })
    return answer(said, { known: facts.map(({ marked }) => marked) })
  })
})
// #endregion

// #region edit-facts
const facts = hf.memory.of('alice')
const { id } = await facts.remember('Alice likes tea', { source: 'the survey of May', ttlMs: 365 * 24 * 3_600_000 })
await facts.remember('Alice likes green tea', { supersedes: id }) // the other one was true until now
await facts.recall('what does she like to drink, tea?', { asOf: Date.now() - 3_600_000, minScore: 0.2 })
await facts.edit(id, { tags: ['drink'] }, { by: 'support', why: 'to find it' })
await facts.forget(id, { by: 'alice', why: 'she asked for it' })
await facts.undo(id) // the last change is taken back
console.log(await facts.get(id)) // with its history: who and why
console.log(await facts.list({ tags: ['drink'], includeRetracted: true }))
// #endregion

// #region embed
const near = await open('sqlite:memory.db', { embed: { embed, model: 'words-of-drinks' } })
const [first] = await near.memory.of('alice').recall('any beverages?')
console.log(first?.score, first?.scores) // { lexical, vector, rank }
// #endregion
await near.close()

// #region outside
const { profile } = hf.memory.of('alice')
await profile.merge({ name: 'Alice', allergies: { milk: true } }, { by: 'support', why: 'she called' })
console.log(await profile.get()) // { allergies: { nuts: true, milk: true }, name: 'Alice' }
console.log(await profile.history({ limit: 1 })) // who changed what and why, the latest first

await hf.memory.session.of('alice-1').set('language', 'en', { ttlMs: 24 * 3_600_000 })
// #endregion
assert.deepEqual(await profile.get(), { allergies: { nuts: true, milk: true }, name: 'Alice' })
assert.equal(await hf.memory.session.of('alice-1').get('language'), 'en')
hf.register(concierge)
assert.equal(await hf.run(concierge, 'where do I live?'), 'where do I live? ({"known":[]})')
assert.match(await hf.run(concierge, 'where in Berlin?'), /⟦memory .{16}⟧ Alice lives in Berlin/)
await hf.close()
