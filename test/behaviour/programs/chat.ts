import { state, type Workflow, workflow } from 'holdfast'

export interface Chat {
  messages: string[]
}

export const chatState = state<Chat>({ version: 1, initial: () => ({ messages: [] }) })

/** A chat that remembers what was said on its thread. `reply` makes the answer to the number of messages so far. */
export function makeChat(reply: (text: string) => Promise<string> | string): Workflow<{ say: string }, string, Chat> {
  return workflow({ name: 'chat', state: chatState }, async (ctx, input: { say: string }) => {
    ctx.update((draft) => {
      draft.messages.push(input.say)
    })
    const answer = await ctx.step('reply', () => reply(ctx.state.messages.join(', ')))
    ctx.update((draft) => {
      draft.messages.push(answer)
    })
    return answer
  })
}
