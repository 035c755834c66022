import { createHash } from 'node:crypto'
import { HoldfastError } from '../../index.ts'

/**
 * Where things are. A thread and namespace, which may be any text, has a head; the head names a short random prefix under which everything
 * else of it is. A deleted thread that begins anew has new prefixes, so nothing written late can turn up in it.
 *
 *   heads        h…  of a thread and namespace: the latest checkpoint, the prefix, the thread's life
 *                t…  how many lives of a thread have ended
 *                e…  the end of one life; what is still to be cleared away
 *   checkpoints  prefix/id
 *   writes       prefix/id/task/kind
 *   channels     prefix/chain/index
 *   effects      e…  of an effect, by its key
 *                s…  of its sender, while that is heard of
 *   items        namespace!key, of the long-term store
 */
export interface Place {
  readonly threadId: string
  readonly ns: string
}

interface Configured {
  readonly configurable?: Readonly<Record<string, unknown>> | undefined
}

/** The thread and namespace that a config names; undefined where it names no thread. */
export function placeOf({ configurable }: Configured): Place | undefined {
  const { thread_id: threadId, checkpoint_ns: ns } = configurable ?? {}
  if (threadId === undefined || threadId === null) return undefined
  return { threadId: text('thread_id', threadId), ns: ns === undefined || ns === null ? '' : text('checkpoint_ns', ns) }
}

export function requirePlace(config: Configured, act: string): Place {
  const place = placeOf(config)
  if (place !== undefined) return place
  throw new HoldfastError(
    'invalid_input',
    `${act} needs a thread_id in config.configurable. Pass { configurable: { thread_id: 'my-thread' } }.`,
  )
}

/** The checkpoint that a config names, if any. */
export function checkpointIdOf({ configurable }: Configured): string | undefined {
  const id = configurable?.['checkpoint_id'] || configurable?.['thread_ts']
  return id === undefined || id === null || id === '' ? undefined : text('checkpoint_id', id)
}

function text(name: string, value: unknown): string {
  if (typeof value === 'string') return value
  throw new HoldfastError(
    'invalid_input',
    `${name} is ${value === null ? 'null' : `of type ${typeof value}`}; it must be a string.`,
  )
}

export function nameOfPlace({ threadId, ns }: Place): string {
  return part(threadId) + part(ns)
}

export function headKey(place: Place): string {
  return `h${nameOfPlace(place)}`
}

export function headsOf(threadId?: string): Range {
  return rangeOf(`h${threadId === undefined ? '' : part(threadId)}`)
}

export function livesKey(threadId: string): string {
  return `t${part(threadId)}`
}

export function endKey(threadId: string, life: number): string {
  return `e${part(threadId)}${life}`
}

export function endsOf(threadId: string): Range {
  return rangeOf(`e${part(threadId)}`)
}

export function checkpointKey(prefix: string, id: string): string {
  return `${prefix}/${word(id)}`
}

/** Of one kind of writes of a task: those that replace earlier ones, and those that don't. */
export function writesKey(prefix: string, id: string, taskId: string, kind: 'replacing' | 'lasting'): string {
  return `${checkpointKey(prefix, id)}/${word(taskId)}/${kind === 'replacing' ? 0 : 1}`
}

export function chainKey(prefix: string, chain: string, index: number): string {
  return `${prefix}/${chain}/${index.toString(36).padStart(5, '0')}`
}

export function effectKey(key: string): string {
  return `e${part(key)}`
}

export function senderKey(holder: string): string {
  return `s${holder}`
}

/** By which the effects of a thread are found. */
export function threadField(threadId: string): { readonly name: string; readonly value: string } {
  return { name: 'thread', value: part(threadId) }
}

/** Of a namespace of the long-term store: one that is below another begins like it, and no other does. */
export function namespaceKey(namespace: readonly string[]): string {
  return namespace.map(part).join('')
}

export function itemKey(namespace: readonly string[], key: string): string {
  return `${namespaceKey(namespace)}!${part(key)}`
}

export interface Range {
  readonly afterKey: string
  readonly beforeKey: string
}

/** Everything that begins with this text. */
export function rangeOf(start: string): Range {
  return { afterKey: start, beforeKey: `${start}\u{10ffff}` }
}

/** What is below a key: those that continue it after a slash. */
export function below(key: string): Range {
  return { afterKey: `${key}/`, beforeKey: `${key}0` }
}

const plain = /^[\x20-\x7e\u00a0-\ud7ff\ue000-\uffef]{0,200}$/u
const plainWord = /^[0-9A-Za-z_.-]{1,100}$/

/** A text inside a key: different for different texts, and none begins like another. Long and unusual ones are hashed. */
function part(value: string): string {
  return plain.test(value) && Buffer.byteLength(value) <= 200 ? `${value.length}:${value}` : `#${hash(value)}`
}

/** Also without a slash. Ids of LangGraph stay as they are and keep their order. */
function word(value: string): string {
  return plainWord.test(value) ? value : `#${hash(value)}`
}

function hash(value: string): string {
  // As UTF-16: every text has its own, lone surrogates included.
  return createHash('sha256').update(Buffer.from(value, 'utf16le')).digest('base64url')
}
