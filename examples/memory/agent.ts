// A chat agent with three memories: the conversation in the state, how to talk for a visit, and what is true about a person for good.

import { state, workflow } from 'holdfast'

const conversation = state({ version: 1, initial: () => ({ name: null as string | null, messages: [] as string[] }) })

export interface Message {
  readonly customer: string
  readonly text: string
}

export const agent = workflow({ name: 'agent', state: conversation }, async (ctx, { customer, text }: Message) => {
  const known = ctx.memory.of(customer)
  const tone = await ctx.memory.session.get<string>('tone')
  const facts = await known.recall(text, { limit: 3 })
  return await ctx.step('reply', async ({ memory, update }) => {
    const allergy = /i am allergic to (\w+)/i.exec(text)?.[1]
    const name = /my name is (\w+)/i.exec(text)?.[1]
    if (allergy !== undefined) {
      await memory.of(customer).remember(`Allergic to ${allergy}`, { kind: 'allergy', tags: ['food'], why: text })
    }
    if (/be brief/i.test(text)) await memory.session.set('tone', 'brief')
    const reply = answer(text, { name: name ?? ctx.state.name, tone, facts: facts.map((fact) => fact.text) })
    // One commit: the reply, the conversation, the tone and the fact.
    update((draft) => {
      draft.name = name ?? draft.name
      draft.messages.push(text, reply)
    })
    return reply
  })
})

interface Known {
  readonly name: string | null
  readonly tone: string | undefined
  readonly facts: readonly string[]
}

/** Stands for a model. */
function answer(text: string, { name, tone, facts }: Known): string {
  if (/allergies|allergic to\?/i.test(text)) return facts.length === 0 ? 'I know of none.' : `${facts.join(', ')}.`
  if (/what is my name/i.test(text)) return name === null ? 'You have not told me.' : `You are ${name}.`
  return tone === 'brief' ? 'Noted.' : `Of course${name === null ? '' : `, ${name}`}, I will keep that in mind.`
}
