import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

interface Message {
  readonly from: 'user' | 'agent'
  readonly text: string
  readonly at: Date
}

// #region define
const conversation = state({
  version: 1,
  initial: () => ({ messages: [] as Message[], openQuestions: new Set<string>() }),
})

const chat = workflow({ name: 'chat', state: conversation }, async (ctx, text: string) => {
  ctx.update((draft) => {
    draft.messages.push({ from: 'user', text, at: new Date(ctx.now()) })
  })
  return await ctx.step('reply', async (step) => {
    const reply = await askModel(ctx.state.messages)
    step.update((draft) => {
      draft.messages.push({ from: 'agent', text: reply, at: new Date() }) // only if the step succeeds, with its result
    })
    return reply
  })
})
// #endregion

async function askModel(messages: readonly Message[]): Promise<string> {
  return `I have read ${messages.length} messages.`
}

const hf = await open('memory:', { workflows: [chat] })
const alice = hf.thread('alice')
await alice.run(chat, 'My name is Alice.')

// #region read
const now = await alice.state(conversation)
for (const { checkpoint, at, step, label, bytes } of await alice.checkpoints()) {
  const then = await alice.stateAt(checkpoint, conversation)
  console.log(checkpoint, new Date(at), step, label, bytes, then.messages.length)
}
// #endregion
assert.equal(now.messages.length, 2)
assert.ok(now.messages[0]?.at instanceof Date)

// #region tag
const [latest] = (await alice.checkpoints()).slice(-1)
if (latest !== undefined) await alice.tag(latest.checkpoint, 'before the call')
// #endregion

// #region edit
await alice.update<typeof now>(
  (draft) => {
    draft.messages.pop()
  },
  { ifAt: 'before the call' }, // optional: `conflict` if the thread has moved on since
)
// #endregion
assert.equal((await alice.state(conversation)).messages.length, 1)
assert.equal((await alice.stateAt('before the call', conversation)).messages.length, 2)
await hf.close()
