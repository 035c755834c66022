// The conversation of the example: a state that grows, and a workflow that answers one message.

import { state, workflow } from 'holdfast'

const conversation = state({
  version: 1,
  initial: () => ({ name: null as string | null, messages: [] as { from: 'user' | 'agent'; text: string }[] }),
})

export const chat = workflow({ name: 'chat', state: conversation }, async (ctx, text: string) => {
  ctx.update((draft) => {
    draft.messages.push({ from: 'user', text })
    draft.name = /my name is (\w+)/i.exec(text)?.[1] ?? draft.name
  })
  const { name, messages } = ctx.state
  const reply = await ctx.step('reply', () => answer(text, name, messages.length))
  ctx.update((draft) => {
    draft.messages.push({ from: 'agent', text: reply })
  })
  return reply
})

/** Stands for a model. */
function answer(text: string, name: string | null, count: number): string {
  if (!/what is my name/i.test(text)) return `Hello ${name ?? 'stranger'}.`
  return name === null ? 'You have not told me.' : `You are ${name}. This is message ${count}.`
}
