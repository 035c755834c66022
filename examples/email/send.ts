// Sends one mail in a run: node send.ts URL RUN_ID OUTBOX. With DIE_AFTER_SENDING=1 it is killed before the result is recorded.

import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { open } from 'holdfast'
import { remindWith } from './remind.ts'

const [url, runId = '', outbox = ''] = process.argv.slice(2)

const remind = remindWith({ send, sentKeys })
const hf = await open(url, { workflows: [remind] })
const run = await hf.start(remind, { customer: 'Alice', month: '2026-11' }, { id: runId })
await run.result()
for (const { type, data } of await run.events()) {
  if (type.startsWith('effect_'))
    console.log(`${runId}: ${type}${data?.['via'] === undefined ? '' : ` (via ${String(data['via'])})`}`)
}
await hf.close()

/** Stands for a mail provider that can be asked what it has sent. */
function send(key: string, text: string): string {
  appendFileSync(outbox, `${JSON.stringify({ key, text })}\n`)
  if (process.env['DIE_AFTER_SENDING'] === '1') process.kill(process.pid, 'SIGKILL')
  return key
}

function sentKeys(): string[] {
  if (!existsSync(outbox)) return []
  const lines = readFileSync(outbox, 'utf8').trim().split('\n')
  return lines.map((line) => (JSON.parse(line) as { key: string }).key)
}
