import { createHash } from 'node:crypto'

/** A Lua script and the hash by which the server knows it. */
export interface Script {
  readonly text: string
  readonly sha: string
}

/**
 * Puts a script together from its parts. Every script is given one key, the namespace's `life`, and derives all others from it. It
 * first compares the value of that key, the namespace id, with ARGV[1]: after a FLUSHALL it refuses to work instead of showing an
 * empty store.
 *
 *   read   changes nothing, so it also works when memory or disk is full
 *   write  refused as a whole, before it begins, when memory is full; once begun it runs to its end
 *   free   a write that needs no more memory than before: it also works when memory is full
 *
 * No other client sees a script half done, but a script that fails is not rolled back: judge first, then write.
 */
export function defineScript(kind: 'read' | 'write' | 'free', body: string): Script {
  const flags = { read: ' flags=no-writes', write: '', free: ' flags=allow-oom' }[kind]
  const text = `#!lua${flags}\n${opening}${body}`
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

/** Field names as Lua arguments. */
export function quoted(fields: readonly string[]): string {
  return fields.map((field) => `'${field}'`).join(', ')
}

/** The position of a field in a reply that lists all of them, counted from 1. */
export function at(fields: readonly string[], field: string): number {
  return fields.indexOf(field) + 1
}

const opening = `
local P = string.sub(KEYS[1], 1, -5)
local call = redis.call
local namespace_id = call('GET', KEYS[1])
if namespace_id ~= ARGV[1] then return redis.error_reply('HOLDFAST ' .. (namespace_id or 'none')) end
`

/**
 * The store's time: the server's, plus the offset in ARGV[2], in whole milliseconds. Durations and dates are whole numbers, too:
 * Lua prints those exactly, and a reply cannot carry fractions.
 */
export const clock = `
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
`

/** How long the server keeps a slot that is not written, in ms. */
export const slotMs = 600_000

/**
 * Makes a write happen once, however often it is sent. ARGV[3] names a slot of the sender, ARGV[4] is the number of the write in
 * that slot, in digits of fixed width. A number that was already written gets its first answer again (`kept`). One that arrives after its
 * successor, from a connection believed dead, is refused; so is one whose slot does not exist (scripts/slots.ts). A script that uses
 * this ends with `return keep(answer)`.
 */
export const once = `
local slot = P .. 'answer:' .. ARGV[3]
local last = call('GETRANGE', slot, 0, 15)
local kept = last == ARGV[4] and cmsgpack.unpack(string.sub(call('GET', slot), 17))
if last == '' then return redis.error_reply('HOLDFASTFORGOTTEN this slot no longer exists') end
if last > ARGV[4] then return redis.error_reply('HOLDFASTLATE a later write of this sender was already carried out') end
local function keep(answer)
  call('SET', slot, ARGV[4] .. cmsgpack.pack(answer), 'PX', ${slotMs})
  return answer
end
`

/** Notifies subscribers. ARGV[5] is the message, or empty. */
export const publish = `
if ARGV[5] ~= '' then call('PUBLISH', P .. 'changes', ARGV[5]) end
`
/** Turns what `pcall` caught into an error reply. It is a text or a table, depending on the server's version. */
export const replyOf = `
local function reply_of(problem)
  return redis.error_reply(type(problem) == 'table' and problem.err or problem)
end
`
