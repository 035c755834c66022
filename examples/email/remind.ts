// The workflow of the example: one mail, under a key of its own.

import { workflow } from 'holdfast'

/** A mail provider that can be asked what it has sent. */
export interface Provider {
  send(key: string, text: string): string
  sentKeys(): string[]
}

export const remindWith = (provider: Provider) =>
  workflow('remind', async (ctx, input: { customer: string; month: string }) => {
    return await ctx.once('send', {
      key: `reminder:${input.customer}:${input.month}`,
      run: (key) => provider.send(key, `Dear ${input.customer}, your invoice of ${input.month} is due.`),
      check: (key) => (provider.sentKeys().includes(key) ? { happened: true, result: key } : { happened: false }),
    })
  })
