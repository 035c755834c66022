import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { open } from 'holdfast'
import { bundleProgram } from '../crash/bed/program-bundle.ts'

/**
 * Many processes call `open` on an empty store at the same moment, and each starts a run in it; one store after another. Returns what went
 * wrong.
 */
export async function openAtOnce(urls: Iterable<string>, { processCount = 20, onStore = () => {} } = {}): Promise<string[]> {
  const program = await bundleProgram(join(import.meta.dirname, 'open-program.ts'))
  const openers = Array.from({ length: processCount }, () => new Opener(program))
  const problems: string[] = []
  try {
    for (const opener of openers) await opener.answer()
    for (const url of urls) {
      const answers = await Promise.all(openers.map((opener) => opener.open(url)))
      problems.push(...answers.filter((answer) => answer !== 'ok'))
      const count = await countRuns(url)
      if (count !== processCount) problems.push(`${processCount} processes left ${count} runs`)
      onStore()
    }
    return problems
  } finally {
    for (const opener of openers) await opener.end()
  }
}

class Opener {
  readonly #child: ChildProcess
  readonly #answers: AsyncIterator<string>

  constructor(program: string) {
    this.#child = spawn(process.execPath, [program], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, NODE_OPTIONS: '' },
    })
    this.#answers = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]()
  }

  async answer(): Promise<string> {
    const { value, done } = await this.#answers.next()
    return done === true ? 'the process has ended' : value
  }

  open(url: string): Promise<string> {
    this.#child.stdin?.write(`${url}\n`)
    return this.answer()
  }

  async end(): Promise<void> {
    const ended = once(this.#child, 'close')
    this.#child.stdin?.end()
    if (this.#child.exitCode === null && this.#child.signalCode === null) await ended
  }
}

async function countRuns(url: string): Promise<number> {
  const hf = await open(url, { worker: false })
  const { items } = await hf.runs.list({ limit: 100 })
  await hf.close()
  return items.length
}
