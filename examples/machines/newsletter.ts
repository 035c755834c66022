// A run that takes a second or two and ends with a mail: enough for something to happen to its machine meanwhile.

import { setTimeout as sleep } from 'node:timers/promises'
import { workflow } from 'holdfast'

export interface NewsletterInput {
  readonly reader: string
  /** Where the mail provider listens. */
  readonly provider: string
}

export const paragraphs = 6

export const newsletter = workflow('newsletter', async (ctx, { reader, provider }: NewsletterInput) => {
  const texts: string[] = []
  for (let n = 1; n <= paragraphs; n++) {
    texts.push(
      await ctx.step(`write_${n}`, async ({ key }) => {
        await note(provider, key)
        await sleep(200)
        return `Paragraph ${n} for ${reader}.`
      }),
    )
  }
  return await ctx.once('send', {
    key: `newsletter:${reader}`,
    run: (key) => post(`${provider}/mails`, { key, text: texts.join('\n') }),
    check: async (key) => {
      const answer = await fetch(`${provider}/mails?key=${encodeURIComponent(key)}`)
      return answer.status === 404 ? { happened: false } : { happened: true, result: await answer.text() }
    },
  })
})

/** Notes that a body began, for the account at the end. */
async function note(provider: string, key: string): Promise<void> {
  await post(`${provider}/bodies`, { key })
}

async function post(url: string, body: object): Promise<string> {
  const answer = await fetch(url, { method: 'POST', body: JSON.stringify(body) })
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`)
  return answer.text()
}
