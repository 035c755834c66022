import { kindOf } from './container.ts'
import type { EventType } from './event.ts'

/** How long a summary is at most, in bytes of UTF-8. */
export const summaryBytes = 256
const ending = '…'

/** A value in short, on one line, at most 256 bytes: for lists and logs, not to be read back. Calls no code of the value. */
export function summaryOf(value: unknown): string {
  const writer = new SummaryWriter()
  try {
    writer.add(value, 0)
  } catch {
    // A proxy may refuse to be looked at.
    writer.text = 'an object'
  }
  // A cut may go through the middle of a character.
  const text = writer.text.toWellFormed()
  const bytes = Buffer.from(text)
  if (bytes.length <= summaryBytes) return text
  const kept = bytes.subarray(0, summaryBytes - Buffer.byteLength(ending)).toString()
  return `${kept.replace(/\ufffd+$/, '')}${ending}`
}

/** What the event of a step says of its input or its result, in short; of an item of a map it is recorded like that. */
export function summaryIn(type: EventType, data: Readonly<Record<string, unknown>>): { readonly summary?: string } {
  if (type === 'step_started' && typeof data['item'] === 'string' && data['input'] === undefined) return { summary: data['item'] }
  const name = shownData[type]
  return name === undefined || data[name] === undefined ? {} : { summary: summaryOf(data[name]) }
}

const shownData: Partial<Record<EventType, string>> = {
  ...{ step_started: 'input', step_completed: 'result', effect_completed: 'result', effect_skipped: 'result' },
  ...{ child_completed: 'result', question_asked: 'question', question_answered: 'result', signal_received: 'result' },
}

const deepest = 8

class SummaryWriter {
  text = ''

  add(value: unknown, depth: number): void {
    if (this.#isFull) return
    const kind = kindOf(value)
    if (kind === 'other' || kind === 'leaf') this.text += shown(value)
    else if (depth === deepest) this.text += ending
    else if (kind === 'array' || kind === 'set') {
      const items = kind === 'set' ? (value as Set<unknown>) : (value as unknown[])
      this.#list(items, kind === 'set' ? ['Set [', ']'] : ['[', ']'], (item) => this.add(item, depth + 1))
    } else if (kind === 'map')
      this.#list(value as Map<unknown, unknown>, ['Map [', ']'], ([key, item]) => {
        this.add(key, depth + 1)
        this.text += ' => '
        this.add(item, depth + 1)
      })
    else
      this.#list(Object.keys(value as object), ['{', '}'], (key) => {
        this.text += /^[A-Za-z_$][\w$]{0,80}$/.test(key) ? `${key}: ` : `${quoted(key)}: `
        const property = Object.getOwnPropertyDescriptor(value, key)
        this.add(property?.get === undefined ? property?.value : ending, depth + 1)
      })
  }

  #list<Item>(items: Iterable<Item>, [open, close]: readonly [string, string], add: (item: Item) => void): void {
    this.text += open
    let isFirst = true
    for (const item of items) {
      if (this.#isFull) return
      if (!isFirst) this.text += ', '
      isFirst = false
      add(item)
    }
    this.text += close
  }

  get #isFull(): boolean {
    return this.text.length > summaryBytes
  }
}

function shown(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return quoted(value)
    case 'bigint':
      return `${value}n`
    case 'number':
      return Object.is(value, -0) ? '-0' : String(value)
    case 'function':
      return 'a function'
    case 'symbol':
      return 'a symbol'
    case 'object':
      return value === null ? 'null' : shownObject(value)
    default:
      return String(value)
  }
}

const { getTime: dateTime, toISOString: isoText } = Date.prototype

function shownObject(value: object): string {
  if (value instanceof Date) return Number.isNaN(dateTime.call(value)) ? 'an invalid date' : isoText.call(value)
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return `${value.byteLength} bytes`
  if (value instanceof Error) return quoted(String(Object.getOwnPropertyDescriptor(value, 'message')?.value ?? 'an error'))
  return 'an object'
}

function quoted(text: string): string {
  return JSON.stringify(text.length > summaryBytes ? text.slice(0, summaryBytes + 1) : text)
}
