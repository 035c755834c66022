import { closeSync, existsSync, openSync, readFileSync, writeSync } from 'node:fs'

/** What a process noted about itself, beside the store, at the moment when it happened. */
export type Note =
  /** A body was entered. */
  | { readonly kind: 'body'; readonly run: string; readonly tape: number; readonly path: string; readonly attempt: number }
  /** The function was given the result of a call: it was acknowledged. */
  | { readonly kind: 'ack'; readonly run: string; readonly tape: number; readonly path: string }
  /** An undo has done its work. */
  | { readonly kind: 'undone'; readonly run: string; readonly path: string }
  /** A signal or an answer was accepted: it is not given again. */
  | { readonly kind: 'given'; readonly name: string }
  /** A person was asked about an unsure effect, and decided what the provider says. */
  | { readonly kind: 'resolved'; readonly key: string; readonly happened: boolean }
  /** The function was thrown this code. */
  | { readonly kind: 'thrown'; readonly run: string; readonly code: string }
  /** The fault comes now. `written`: steps whose results were written by the call that it comes after. */
  | { readonly kind: 'struck'; readonly written: readonly string[] }

export type JournalEntry = Note & { readonly life: number; readonly at: number }

/** An append-only file beside the store. A note is with the kernel when `write` returns, so that a kill cannot take it back. */
export class Journal {
  readonly #descriptor: number
  readonly #life: number

  constructor(file: string, life: number) {
    this.#descriptor = openSync(file, 'a')
    this.#life = life
  }

  write(note: Note): void {
    writeSync(this.#descriptor, `${JSON.stringify({ life: this.#life, at: Date.now(), ...note })}\n`)
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

/** The bodies that one life entered, each with the number of times its path had been entered by then. */
export function readJournalBodies(journal: readonly JournalEntry[]): { path: string; nth: number }[] {
  const counts = new Map<string, number>()
  return journal.flatMap((note) => {
    if (note.kind !== 'body') return []
    const nth = (counts.get(note.path) ?? 0) + 1
    counts.set(note.path, nth)
    return [{ path: note.path, nth }]
  })
}
