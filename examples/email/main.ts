// A mail is sent once: not again after a crash between sending and recording, and not again by another run with the same key.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = await mkdtemp(join(tmpdir(), 'holdfast-email-'))
const outbox = join(folder, 'outbox.jsonl')
try {
  console.log('The mail goes out, and the process is killed before it can note that:')
  await send('monday', { DIE_AFTER_SENDING: '1' })
  console.log('Started again, the same run asks the provider first:')
  await send('monday')
  console.log('Another run meets the same key:')
  await send('tuesday')
  const mails = (await readFile(outbox, 'utf8')).trim().split('\n')
  console.log(`Mails sent: ${mails.length}`)
  if (mails.length !== 1) process.exitCode = 1
} finally {
  await rm(folder, { recursive: true, force: true })
}

async function send(runId: string, env: Record<string, string> = {}): Promise<void> {
  const program = join(import.meta.dirname, 'send.ts')
  const args = [...process.execArgv, program, `sqlite:${join(folder, 'email.db')}`, runId, outbox]
  const child = spawn(process.execPath, args, { stdio: 'inherit', env: { ...process.env, ...env } })
  const [code, signal] = await once(child, 'exit')
  if (code !== 0 && signal !== 'SIGKILL') throw new Error(`send.ts ended with ${code}.`)
  if (signal !== null) console.log(`${runId}: killed (${signal})`)
}
