import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { type EffectOptions, type Workflow, workflow } from 'holdfast'

/** A provider that lives outside of every process: it remembers the keys of the mails that it has sent. */
export function sentKeys(file: string): string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
}

/** A workflow with one effect. `afterSending` is called between the sending and the recording. */
export function makeMailer(
  file: string,
  declaration: 'idempotent' | 'check' | 'neither',
  afterSending: () => void = () => {},
): Workflow<{ to: string }, string, Record<string, unknown>> {
  const declared: Partial<EffectOptions<string>> =
    declaration === 'idempotent'
      ? { idempotent: true }
      : declaration === 'check'
        ? { check: (key) => ({ happened: sentKeys(file).includes(key), result: 'found' }) }
        : {}
  return workflow('mailer', async (ctx, input: { to: string }) => {
    const text = await ctx.step('write', () => `Dear ${input.to}`)
    return ctx.once('send', {
      ...declared,
      run: (key) => {
        appendFileSync(file, `${key}\n`)
        afterSending()
        return `sent: ${text}`
      },
    })
  })
}
