// What an agent remembers, and for how long: each turn is answered by a process that is then killed with SIGKILL. It runs by itself.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'holdfast'

const folder = await mkdtemp(join(tmpdir(), 'holdfast-memory-'))
const url = `sqlite:${join(folder, 'memory.db')}`
try {
  await say('alice-1', 'My name is Alice, please be brief.')
  await say('alice-1', 'I am allergic to nuts.')
  await say('alice-1', 'What is my name?')
  console.log('A new conversation: the name and the tone were of the last one, the allergy is for good.')
  await say('alice-2', 'What allergies do I have?')
  await say('alice-2', 'What is my name?')
  await say('alice-2', 'Book a table.')
  const hf = await open(url, { worker: false })
  const [fact] = await hf.memory.of('alice').recall('nuts')
  console.log(
    `Known about alice: ${fact?.text} (${fact?.kind}), learned by ${fact?.source.threadId} in its step "${fact?.source.step}"`,
  )
  await hf.close()
} finally {
  await rm(folder, { recursive: true, force: true })
}

async function say(thread: string, text: string): Promise<void> {
  const program = join(import.meta.dirname, 'turn.ts')
  const child = spawn(process.execPath, [...process.execArgv, program, url, thread, 'alice', text], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const [reply] = await Promise.race([
    once(child.stdout, 'data'),
    exited.then(([code]) => Promise.reject(new Error(`It ended with ${code}.`))),
  ])
  console.log(`${thread}: ${text}`)
  console.log(`  agent: ${String(reply).trim()}`)
  child.kill('SIGKILL')
  await exited
}
