import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { FactPage, FactWithHistory, RecalledFact, RememberedFact } from '../model/fact.ts'
import type { FactChangeOptions, FactEdit, FactListOptions, RecallOptions, RememberOptions } from '../model/fact-options.ts'

/** What outlives a run, besides the state of its thread. Its owner is that of the run or the client. */
export interface Memory {
  /** What is worth keeping for a while: values with a time to live. Of a run, those of its thread. */
  readonly session: SessionMemory
  /** What is to be kept for good about one subject: a person, a customer, a topic. */
  of(subject: string): SubjectMemory
}

/** Values of a session. One that has expired is never returned. */
export interface SessionMemory {
  /** The value; undefined where there is none. Using it begins its time to live anew. */
  get<T = unknown>(key: string): Promise<T | undefined>
  /** Keeps a value, for an hour unless `ttlMs` says something else. */
  set(key: string, value: unknown, options?: SessionSetOptions): Promise<void>
  delete(key: string): Promise<void>
  /** All values, in the order of their keys. Listing does not count as use. */
  list(): Promise<readonly SessionValue[]>
  /** Another session than the thread's: any id, for example that of a login. A thread's own session has the id of the thread. */
  of(sessionId: string): SessionMemory
}

export interface SessionSetOptions {
  /** How long it is kept after it was set or used last, in ms. `Infinity`: until it is deleted. Default 3,600,000: an hour. */
  readonly ttlMs?: number
}

export interface SessionValue {
  readonly key: string
  readonly value: unknown
  /** In ms since 1970 by the store's clock; absent where it does not expire. */
  readonly expiresAt?: number
}

/** What is known about one subject. Another owner's subject of the same name is another one. */
export interface SubjectMemory extends FactMemory {
  readonly profile: Profile
}

/** What is known about a subject in sentences, each found by its words. */
export interface FactMemory {
  /**
   * Keeps a fact. Text that is known already, case and spaces aside, is recognized: nothing is kept twice, however many say it at the same time. Text
   * with the mark of a recalled fact (`marked`) is that fact, and nothing is kept.
   */
  remember(text: string, options?: RememberOptions): Promise<RememberedFact>
  /** Facts that answer a question, the best first; without those that were forgotten, replaced or quarantined, or are not true now. */
  recall(query: string, options?: RecallOptions): Promise<readonly RecalledFact[]>
  /** A fact by its id, with its history; undefined where there is none. */
  get(id: string): Promise<FactWithHistory | undefined>
  /** Facts in the order of their ids, page by page. */
  list(options?: FactListOptions): Promise<FactPage>
  /** Corrects a fact. Returns the id that it has then: a new one where its text or kind is another. */
  edit(id: string, changes: FactEdit, options?: FactChangeOptions): Promise<RememberedFact>
  /** Nobody recalls it any more. It stays for its history, and `undo` brings it back. False where there is none, or it was forgotten already. */
  forget(id: string, options?: FactChangeOptions): Promise<boolean>
  /** Takes back the last change of a fact, whoever made it; again, and it is made again. False where there is none. */
  undo(id: string, options?: FactChangeOptions): Promise<boolean>
  /** Makes a fact that a fork has learned known to all. Returns the id that it has then, undefined where it is none of a fork. */
  promote(id: string, options?: FactChangeOptions): Promise<RememberedFact | undefined>
}

/** One object about the subject. */
export interface Profile {
  /** The whole profile; an empty object where there is none. */
  get<T = Record<string, unknown>>(): Promise<T>
  /**
   * Merges a patch into the profile, key by key and deeply; null deletes a key, everything that is no plain object is replaced as a whole.
   * Merges at the same time all count. Returns the profile as it is then; in the body of a step, as it would be now: it is written
   * with the step's result, and merged again if another writer was first.
   */
  merge<T = Record<string, unknown>>(patch: Readonly<Record<string, unknown>>, options?: ProfileMergeOptions): Promise<T>
  /** Who changed what and why, the latest first. */
  history(options?: ProfileHistoryOptions): Promise<readonly ProfileChange[]>
}

export interface ProfileMergeOptions {
  /** Why: shown in the history. */
  readonly why?: string
  /** Who: shown in the history. In a run it is the run, unless you say more. */
  readonly by?: string
  /** Validates the merged profile: zod, valibot, arktype or any other Standard Schema. What it returns is kept. */
  readonly schema?: StandardSchemaV1
}

export interface ProfileHistoryOptions {
  /** Default 100. */
  readonly limit?: number
}

export interface ProfileChange {
  /** Of the profile after the change, from 1. */
  readonly version: number
  readonly at: number
  readonly patch: unknown
  readonly why?: string
  readonly by?: string
  /** Where it came from, if from a run. */
  readonly runId?: string
  readonly threadId?: string
  readonly step?: string
}
