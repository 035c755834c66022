import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'

/** What happened in a scenario, outside of the store, written by the process that saw it. */
export type Note =
  /** A body was entered; `token` is what it will return. */
  | { readonly of: 'body'; readonly run: string; readonly tape: number; readonly path: string; readonly token: string }
  /** The function was given the result of a call: it was acknowledged. */
  | { readonly of: 'ack'; readonly run: string; readonly tape: number; readonly path: string }
  /** A request reached the provider. */
  | { readonly of: 'sent'; readonly run: string; readonly name: string; readonly key: string }
  /** A workflow asked the provider whether an effect had happened. */
  | { readonly of: 'looked'; readonly key: string; readonly happened: boolean }
  /** A person decided about an unsure effect, as the provider says. */
  | { readonly of: 'decided'; readonly key: string; readonly happened: boolean }
  /** A worker holds a run from here on, until it lets go or is told that it has lost it. */
  | { readonly of: 'claimed'; readonly run: string; readonly epoch: number; readonly leaseId: string }
  | { readonly of: 'released'; readonly run: string; readonly epoch: number }
  | { readonly of: 'fenced'; readonly run: string; readonly epoch: number }
  /** A client was told that a run is started. */
  | { readonly of: 'started'; readonly run: string }
  /** What a worker said in its log. */
  | { readonly of: 'said'; readonly message: string }
  /** The store is gone; the store that has forgotten is let to everybody. */
  | { readonly of: 'moment'; readonly what: 'gone' | 'back' }

/** By which process, and when. Their order in the file is that in which they happened. */
export type Entry = Note & { readonly by: number; readonly at: number }

/** One file that all processes of a scenario append to. */
export class Journal {
  readonly #descriptor: number
  readonly #by: number

  constructor(file: string, by: number) {
    this.#descriptor = openSync(file, 'a')
    this.#by = by
  }

  write(note: Note): void {
    writeSync(this.#descriptor, `${JSON.stringify({ by: this.#by, at: Date.now(), ...note })}\n`)
  }

  close(): void {
    closeSync(this.#descriptor)
  }
}

export function readJournal(file: string): Entry[] {
  const lines = readFileSync(file, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Entry)
}
