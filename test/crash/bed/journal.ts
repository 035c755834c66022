import { closeSync, existsSync, openSync, readFileSync, writeSync } from 'node:fs'

/** What a process wrote about itself, outside of the store, at the moment it happened. */
export type Note =
  /** A body was entered. */
  | { readonly kind: 'body'; readonly run: string; readonly tape: number; readonly path: string; readonly attempt: number }
  /** The function was given the result of a call: it was acknowledged. */
  | { readonly kind: 'ack'; readonly run: string; readonly tape: number; readonly path: string }
  /** An undo has done its work. */
  | { readonly kind: 'undone'; readonly run: string; readonly path: string }
  /** A signal or an answer was accepted: it is not sent again. */
  | { readonly kind: 'sent'; readonly name: string }
  /** An unsure effect was resolved with what the provider says. */
  | { readonly kind: 'resolved'; readonly key: string; readonly happened: boolean }
  /** The function caught an error with this code. */
  | { readonly kind: 'thrown'; readonly run: string; readonly code: string }
  /** The fault is injected now. `written`: steps whose results the call before it has written. */
  | { readonly kind: 'fault'; readonly written: readonly string[] }

export type JournalEntry = Note & { readonly processNumber: number; readonly at: number }

/** An append-only file next to the store. The kernel has a note when `write` returns, so that a kill does not lose it. */
export class Journal {
  readonly #descriptor: number
  readonly #processNumber: number

  constructor(file: string, processNumber: number) {
    this.#descriptor = openSync(file, 'a')
    this.#processNumber = processNumber
  }

  write(note: Note): void {
    writeSync(this.#descriptor, `${JSON.stringify({ processNumber: this.#processNumber, at: Date.now(), ...note })}\n`)
  }

  close(): void {
    closeSync(this.#descriptor)
  }
}

export function readJournal(file: string): JournalEntry[] {
  if (!existsSync(file)) return []
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as JournalEntry)
}

/** The bodies that one process entered, each with the number of times its path had been entered by then. */
export function readJournalBodies(journal: readonly JournalEntry[]): { path: string; nth: number }[] {
  const counts = new Map<string, number>()
  return journal.flatMap((note) => {
    if (note.kind !== 'body') return []
    const nth = (counts.get(note.path) ?? 0) + 1
    counts.set(note.path, nth)
    return [{ path: note.path, nth }]
  })
}
