// A thread remembers, whatever happens to the process: each message is answered by a process that is then killed with SIGKILL.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = await mkdtemp(join(tmpdir(), 'holdfast-chat-'))
try {
  await say('alice', 'My name is Alice.')
  await say('alice', 'What is my name?')
  await say('bob', 'What is my name?')
} finally {
  await rm(folder, { recursive: true, force: true })
}

async function say(thread: string, text: string): Promise<void> {
  const url = `sqlite:${join(folder, 'chat.db')}`
  const program = join(import.meta.dirname, 'chat.ts')
  const child = spawn(process.execPath, [...process.execArgv, program, url, thread, text], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const [reply] = await Promise.race([
    once(child.stdout, 'data'),
    exited.then(([code]) => Promise.reject(new Error(`It ended with ${code}.`))),
  ])
  console.log(`${thread}: ${text}`)
  console.log(`agent: ${String(reply).trim()}`)
  child.kill('SIGKILL')
  const [, signal] = await exited
  console.log(`       (process ${child.pid} ended by ${signal})`)
}
