import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

async function askModel(messages: readonly string[]): Promise<string> {
  return `I have read ${messages.length} messages.`
}

const hf = await open('memory:')

// #region thread
const conversation = state({ version: 1, initial: () => ({ messages: [] as string[] }) })

const chat = workflow({ name: 'chat', state: conversation }, async (ctx, text: string) => {
  ctx.update((draft) => {
    draft.messages.push(text)
  })
  const reply = await ctx.step('reply', () => askModel(ctx.state.messages))
  ctx.update((draft) => {
    draft.messages.push(reply)
  })
  return reply
})

await hf.thread('alice').run(chat, 'My name is Alice.')
await hf.thread('alice').run(chat, 'What is my name?') // sees the messages before it; thread 'bob' does not
// #endregion

const { messages } = await hf.thread('alice').state(conversation)
assert.equal(messages.length, 4)
assert.equal(messages[3], 'I have read 3 messages.')
await hf.close()
