import { appendFileSync, closeSync, openSync, readSync, statSync } from 'node:fs'
import type { Act, Fault } from './acts.ts'
import type { CallValue } from './values.ts'

/**
 * What happened outside of the store, in order: bodies that ran, what the world saw, what the function was given, what people did. A process
 * that was killed adds nothing any more.
 */
export type Note =
  /** The function was called, from its beginning. */
  | { readonly of: 'call'; readonly run: string; readonly execution: number; readonly tape: number }
  /** The function has come to its end. A branch that lost a race may still be under way. */
  | { readonly of: 'returned'; readonly run: string }
  | { readonly of: 'body'; readonly run: string; readonly at: string; readonly attempt: number; readonly key: string }
  /** A body came to its end with a result. */
  | { readonly of: 'result'; readonly run: string; readonly at: string; readonly attempt: number }
  | { readonly of: 'fallback'; readonly run: string; readonly at: string }
  /** The function was given the outcome of a call. */
  | { readonly of: 'given'; readonly run: string; readonly at: string; readonly execution: number; readonly value: string }
  /** A section was entered. */
  | { readonly of: 'entered'; readonly run: string; readonly at: string; readonly execution: number }
  /** The function of a section threw: an error of its own, or what ends an execution whose run has ended or was taken away. */
  | { readonly of: 'left'; readonly run: string; readonly at: string; readonly execution: number; readonly isOwn: boolean }
  | Looked
  | { readonly of: 'sent'; readonly run: string; readonly at: string; readonly key: string }
  | { readonly of: 'happened'; readonly run: string; readonly at: string; readonly key: string; readonly result: unknown }
  /** What was sent has come to its end, whatever that was: nothing of it can happen any more. */
  | { readonly of: 'settled'; readonly key: string }
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
  | Forked
  | { readonly of: 'resumed'; readonly run: string }
  /** A thread may have been rewound from here on; it was. */
  | { readonly of: 'rewinding'; readonly thread: string }
  | { readonly of: 'rewound'; readonly thread: string }
  /** Somebody cancelled a child that fails whenever it is tried. */
  | { readonly of: 'given_up'; readonly run: string }
  /** A person decides; `refused`: the decision was not taken. */
  | { readonly of: 'resolved'; readonly key: string; readonly happened: boolean | 'refused' }
  /** `awaiting`: the runs whose functions awaited something of their own. */
  | { readonly of: 'fault'; readonly fault: Fault; readonly awaiting?: readonly string[] }
  | { readonly of: 'told'; readonly id: string; readonly kind: string; readonly run: string }

/** A copy was made, and nothing of it may run before it is `resumed`. */
export interface Forked {
  readonly of: 'forked'
  readonly nth: number
  readonly thread: string
  /** Null: the checkpoint was in no run. */
  readonly run: string | null
  readonly from: string
  /** The results that the original had on record there. */
  readonly held: readonly { readonly step: string; readonly value: CallValue }[]
  /** Paths of what it had waited for there, with another kind of result. */
  readonly waited: readonly string[]
  readonly replaced?: Replaced
}

/** The call that has another result in a copy. */
export interface Replaced {
  readonly at: string
  /** What the function is given for it; absent for a step of a plan. */
  readonly given?: string
}

/** Somebody looked at the state: the function, a section that begins, or a body. */
export interface Looked {
  readonly of: 'looked'
  readonly run: string
  readonly at: string
  readonly by: 'function' | 'section' | 'body'
  /** The words that were there. */
  readonly list: readonly string[]
  /** What the branch had changed by then. */
  readonly own: readonly string[]
}

export class Journal {
  readonly notes: Note[] = []
  readonly #file: string | undefined
  readonly #listeners = new Set<() => void>()
  #read = 0

  /**
   * With a file, several processes write it, and notes outlive them: they are with the kernel when `write` returns. Their order is that of
   * the file.
   */
  constructor(file?: string) {
    this.#file = file
    if (file !== undefined) closeSync(openSync(file, 'a'))
    this.pull()
  }

  write(note: Note): void {
    if (this.#file === undefined) this.#take(note)
    else {
      appendFileSync(this.#file, `${JSON.stringify(note)}\n`)
      this.pull()
    }
  }

  /** Takes in what other processes have written. */
  pull(): void {
    if (this.#file === undefined) return
    const { size } = statSync(this.#file)
    if (size === this.#read) return
    const bytes = Buffer.alloc(size - this.#read)
    const descriptor = openSync(this.#file, 'r')
    readSync(descriptor, bytes, 0, bytes.length, this.#read)
    closeSync(descriptor)
    const end = bytes.lastIndexOf(10) + 1
    this.#read += end
    const lines = bytes.subarray(0, end).toString('utf8').split('\n')
    for (const line of lines) if (line !== '') this.#take(JSON.parse(line) as Note)
  }

  #take(note: Note): void {
    this.notes.push(note)
    for (const listener of this.#listeners) listener()
  }

  onWrite(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** What the world knows of a key: what happened under it, and was not undone since. */
  happening(key: string): { readonly result: unknown } | undefined {
    this.pull()
    let found: { readonly result: unknown } | undefined
    for (const note of this.notes) {
      if (note.of === 'happened' && note.key === key) found = { result: note.result }
      else if (note.of === 'undo' && note.key === key && note.ok) found = undefined
    }
    return found
  }

  /** Whether something that was sent under a key may still happen: its process lives and has not come to the end of it. */
  isBeingSent(key: string): boolean {
    this.pull()
    let sendings = 0
    for (const note of this.notes) {
      if (note.of === 'sent' && note.key === key) sendings++
      else if (note.of === 'settled' && note.key === key) sendings--
      else if (note.of === 'fault' && (note.fault.kind === 'crash' || note.fault.kind === 'kill')) sendings = 0
    }
    return sendings > 0
  }

  count(isMeant: (note: Note) => boolean): number {
    let count = 0
    for (const note of this.notes) if (isMeant(note)) count++
    return count
  }
}
