/**
 * What a result says that a patch of the same commit says as well is left out of the result: it is kept once, in the patch. A payload that was
 * shortened begins with a mark, which no encoded value does, and says where its parts are:
 *
 *   ~[checksum,at,offset,start,length,…]{"result":""}
 *
 * For each part: at which character of the text behind the bracket it belongs, in the patch of which record it is (`offset` from this one, 0 for
 * this one itself), and where it is in that patch's text.
 *
 * 1. Patches are never shortened: reading a state reads what it always did.
 * 2. What is left out is in the same commit. So whatever keeps a commit whole keeps the result whole.
 * 3. A part that is not what was left out is `corrupt_record`: where it is in another record, the payload has a checksum of the whole text. So is
 *    a shortened payload that is decoded without its parts.
 */
import { crc32 } from 'node:zlib'
import { corrupt } from './codec-tags.ts'
import type { EventType, NewEvent } from './event.ts'
import type { Payload } from './payload.ts'

/** In characters. Of shorter ones too little would be saved; a result that has none is not looked at. */
const shortestPart = 256
/** So much of a value is looked for before the rest is compared. */
const probeLength = 64
const mark = '~'

/** The events of one commit, their results without what its patches say. */
export function leaveOutRepeats(events: readonly NewEvent[]): readonly NewEvent[] {
  if (!events.some(({ patch }) => isLong(patch)) || !events.some(isLongResult)) return events
  return events.map((event, index) => {
    if (!isLongResult(event)) return event
    const payload = shorten(event.payload as string, patchesAround(events, index))
    return payload === null ? event : { ...event, payload }
  })
}

export function isShortened(payload: Payload | null): payload is string {
  return typeof payload === 'string' && payload.startsWith(mark)
}

/** A shortened payload, read. */
export interface Shortened {
  readonly checksum: number
  readonly parts: readonly Part[]
  readonly rest: string
}

export function readShortened(payload: string): Shortened {
  const end = payload.indexOf(']')
  const numbers = payload
    .slice(mark.length + 1, end)
    .split(',')
    .map(Number)
  if (payload[mark.length] !== '[' || numbers.length < 5 || numbers.length % 4 !== 1 || !numbers.every(Number.isSafeInteger))
    throw corrupt('it does not say where its parts are')
  const parts: Part[] = []
  for (let i = 1; i < numbers.length; i += 4) {
    const [at, offset, start, length] = [numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]] as [
      number,
      number,
      number,
      number,
    ]
    parts.push({ at, offset, start, length })
  }
  return { checksum: numbers[0] as number, parts, rest: payload.slice(end + 1) }
}

/** The payload as it was. `patchAt` gives the patch of the record at an offset from the payload's. */
export function putBackRepeats(
  { checksum, parts, rest }: Shortened,
  patchAt: (offset: number) => Payload | null | undefined,
): string {
  let whole = ''
  let from = 0
  for (const { at, offset, start, length } of parts) {
    const patch = patchAt(offset)
    if (typeof patch !== 'string') throw corrupt('the change of the state that has a part of it is missing')
    whole += rest.slice(from, at) + patch.slice(start, start + length)
    from = at
  }
  whole += rest.slice(from)
  if (checksumOf(whole, parts) !== checksum) throw corrupt('a part of it is not what was left out')
  return whole
}

/** Where a part belongs, and where it is. */
interface Part {
  /** In the text without the parts. */
  readonly at: number
  readonly offset: number
  readonly start: number
  readonly length: number
}

interface Source {
  readonly offset: number
  readonly text: string
}

const results: ReadonlySet<EventType> = new Set(['step_completed', 'run_completed'])

function isLongResult({ type, payload }: NewEvent): boolean {
  return isLong(payload) && results.has(type)
}

function isLong(payload: Payload | null): payload is string {
  return typeof payload === 'string' && payload.length >= shortestPart
}

/** Those of the commit, its own first. */
function patchesAround(events: readonly NewEvent[], index: number): Source[] {
  const sources: Source[] = []
  for (const [at, { patch }] of events.entries()) if (isLong(patch)) sources.push({ offset: at - index, text: patch })
  return sources.sort((a, b) => Math.abs(a.offset) - Math.abs(b.offset))
}

/** Null if no patch has a part of it. */
function shorten(text: string, sources: readonly Source[]): string | null {
  const parts: Part[] = []
  let rest = ''
  let from = 0
  const leaveOut = (at: number, found: Omit<Part, 'at'>) => {
    rest += text.slice(from, at)
    parts.push({ at: rest.length, ...found })
    from = at + found.length
  }
  // The value as a whole, behind its name; then its strings, without their quotes.
  const value = text.indexOf(':') + 1
  const whole = findBeginning(text, value, sources)
  if (whole !== null) leaveOut(value, whole)
  for (const { start, end } of longStrings(text)) {
    if (start < from) continue
    const found = find(text.slice(start, end), sources)
    if (found !== null) leaveOut(start, found)
  }
  if (parts.length === 0) return null
  const places = parts.flatMap(({ at, offset, start, length }) => [at, offset, start, length])
  return `${mark}[${[checksumOf(text, parts), ...places].join(',')}]${rest}${text.slice(from)}`
}

/** 0 where the record's own patch has every part: the checksum of a record covers its payload and its patch together. */
function checksumOf(whole: string, parts: readonly Part[]): number {
  return parts.some(({ offset }) => offset !== 0) ? crc32(whole) : 0
}

function find(part: string, sources: readonly Source[]): Omit<Part, 'at'> | null {
  for (const { offset, text } of sources) {
    const start = text.indexOf(part)
    if (start !== -1) return { offset, start, length: part.length }
  }
  return null
}

/** As much of the text from a place on as stands in a patch. */
function findBeginning(text: string, at: number, sources: readonly Source[]): Omit<Part, 'at'> | null {
  const probe = text.slice(at, at + probeLength)
  for (const { offset, text: source } of sources) {
    const start = source.indexOf(probe)
    if (start === -1) continue
    const length = commonLength(text, at, source, start)
    if (length >= shortestPart) return { offset, start, length }
  }
  return null
}

/** For how many characters two texts are the same, from a place in each on. Halves are compared: that is faster than one after the other. */
function commonLength(one: string, from: number, other: string, start: number): number {
  let length = 0
  let differs = Math.min(one.length - from, other.length - start) + 1
  while (length + 1 < differs) {
    const middle = (length + differs) >>> 1
    if (one.slice(from + length, from + middle) === other.slice(start + length, start + middle)) length = middle
    else differs = middle
  }
  // Half of a character is not text: a store would keep another one.
  return one.slice(from, from + length).isWellFormed() ? length : length - 1
}

/** What stands between the quotes of long strings in JSON. */
function* longStrings(json: string): Generator<{ readonly start: number; readonly end: number }> {
  for (let start = json.indexOf('"') + 1; start > 0; ) {
    let end = json.indexOf('"', start)
    while (end !== -1 && isEscaped(json, end)) end = json.indexOf('"', end + 1)
    if (end === -1) return
    if (end - start >= shortestPart) yield { start, end }
    start = json.indexOf('"', end + 1) + 1
  }
}

function isEscaped(json: string, at: number): boolean {
  let slashes = 0
  while (json.charCodeAt(at - 1 - slashes) === backslash) slashes += 1
  return slashes % 2 === 1
}

const backslash = 0x5c
