import { appendFileSync } from 'node:fs'
import type { Act, Fault } from './acts.ts'

/**
 * What happened outside of the store, in order: bodies that ran, what the world saw, what the function was given, what people did. A process
 * that was killed adds nothing any more.
 */
export type Note =
  /** The function was called, from its beginning. */
  | { readonly of: 'call'; readonly run: string; readonly execution: number; readonly tape: number }
  | { readonly of: 'body'; readonly run: string; readonly at: string; readonly attempt: number; readonly key: string }
  /** A body came to its end with a result. */
  | { readonly of: 'result'; readonly run: string; readonly at: string; readonly attempt: number }
  | { readonly of: 'fallback'; readonly run: string; readonly at: string }
  /** The function was given the outcome of a call. */
  | { readonly of: 'given'; readonly run: string; readonly at: string; readonly execution: number; readonly value: string }
  /** A section was entered. */
  | { readonly of: 'entered'; readonly run: string; readonly at: string; readonly execution: number }
  | { readonly of: 'sent'; readonly run: string; readonly at: string; readonly key: string }
  | { readonly of: 'happened'; readonly run: string; readonly at: string; readonly key: string; readonly result: unknown }
  | { readonly of: 'checked'; readonly run: string; readonly at: string; readonly key: string; readonly happened: boolean }
  | { readonly of: 'undo'; readonly run: string; readonly at: string; readonly ok: boolean; readonly key?: string }
  | { readonly of: 'act'; readonly nth: number; readonly act: Act; readonly client: number; readonly stage: 'begins' }
  | {
      readonly of: 'act'
      readonly nth: number
      readonly act: Act
      readonly client: number
      readonly stage: 'ends'
      /** The error's code; absent: it resolved. */
      readonly code?: string
      readonly detail?: string
    }
  | { readonly of: 'resolved'; readonly key: string; readonly happened: boolean }
  | { readonly of: 'fault'; readonly fault: Fault }
  | { readonly of: 'told'; readonly id: string; readonly kind: string; readonly run: string }

export class Journal {
  readonly notes: Note[] = []
  readonly #file: string | undefined
  readonly #listeners = new Set<() => void>()

  /** With a file, notes outlive the process: they are with the kernel when `write` returns. */
  constructor(file?: string, earlier: readonly Note[] = []) {
    this.#file = file
    this.notes.push(...earlier)
  }

  write(note: Note): void {
    this.notes.push(note)
    if (this.#file !== undefined) appendFileSync(this.#file, `${JSON.stringify(note)}\n`)
    for (const listener of this.#listeners) listener()
  }

  onWrite(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** What the world knows of a key: what happened under it, and was not undone since. */
  happening(key: string): { readonly result: unknown } | undefined {
    let found: { readonly result: unknown } | undefined
    for (const note of this.notes) {
      if (note.of === 'happened' && note.key === key) found = { result: note.result }
      else if (note.of === 'undo' && note.key === key && note.ok) found = undefined
    }
    return found
  }

  count(isMeant: (note: Note) => boolean): number {
    let count = 0
    for (const note of this.notes) if (isMeant(note)) count++
    return count
  }
}
