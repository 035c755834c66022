import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

const url = 'sqlite:migrations.db'
{
  const old = state({ version: 1, initial: () => ({ messages: [] as string[] }) })
  const oldChat = workflow({ name: 'chat', state: old }, async (ctx, text: string) => {
    ctx.update((draft) => {
      draft.messages.push(text)
    })
  })
  const hf = await open(url, { workflows: [oldChat] })
  await hf.thread('alice').run(oldChat, 'hello')
  await hf.close()
}

// #region define
const conversation = state({
  version: 2,
  initial: () => ({ messages: [] as { text: string }[], language: 'en' }),
  migrations: {
    1: (old: { messages: string[] }) => ({ messages: old.messages.map((text) => ({ text })), language: 'en' }),
  },
})
// #endregion

const chat = workflow({ name: 'chat', state: conversation }, async (ctx, text: string) => {
  ctx.update((draft) => {
    draft.messages.push({ text })
  })
})

const hf = await open(url, { workflows: [chat] })
// #region check
const { checked, current, failed } = await hf.checkMigration(conversation)
for (const { threadId, fromVersion, error } of failed) console.error(threadId, fromVersion, error)
// #endregion
assert.deepEqual({ checked, current, failed }, { checked: 1, current: 0, failed: [] })

await hf.thread('alice').run(chat, 'again')
assert.deepEqual(await hf.thread('alice').state(), { messages: [{ text: 'hello' }, { text: 'again' }], language: 'en' })
await hf.close()
