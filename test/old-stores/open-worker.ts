import { appendFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Holdfast, open } from 'holdfast'
import { patience } from '../patience.ts'
import { makeWorkflows } from './workflows.ts'

/** Opens an old store with a worker. What its bodies do, and which messages arrive, becomes lines of the journal. */
export function openWorker(url: string, folder: string): Promise<Holdfast> {
  const write = (line: string) => appendFileSync(join(folder, 'journal'), `${line}\n`)
  const act = async <T>(runId: string, what: string, result: T) => {
    write(`${runId}: ${what}`)
    return result
  }
  return open(url, {
    workflows: makeWorkflows({ act, edition: 2 }),
    clock: clockIn(folder),
    worker: { pollMs: 50, quietMs: 20, leaseMs: patience(10_000) },
    logger: false,
    notify: { name: 'ops', deliver: ({ id }) => write(`delivered: ${id}`) },
  })
}

export function readJournal(folder: string): string[] {
  return readFileSync(join(folder, 'journal'), 'utf8').split('\n').slice(0, -1)
}

/** The clock of all clients in all processes: what is added to the time is in a file. */
export function clockIn(folder: string): () => number {
  return () => Number(readFileSync(join(folder, 'clock'), 'utf8'))
}

/** Put in place whole: somebody reads it at any moment. */
export function setClock(folder: string, offsetMs: number): void {
  writeFileSync(join(folder, 'clock-to-be'), String(offsetMs))
  renameSync(join(folder, 'clock-to-be'), join(folder, 'clock'))
}
