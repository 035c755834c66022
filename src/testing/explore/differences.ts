import { isDeepStrictEqual } from 'node:util'
import type { RunEvent } from '../../index.ts'

/** Where two values differ: paths from the root, `$.payments[1].amount`. */
export function differences(a: unknown, b: unknown, path = '$'): string[] {
  if (isDeepStrictEqual(a, b)) return []
  if (!isContainer(a) || !isContainer(b) || Array.isArray(a) !== Array.isArray(b)) return [path]
  if (Array.isArray(a) && Array.isArray(b) && a.length !== b.length) return [path]
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])]
  const inside = keys.flatMap((key) => differences(a[key], b[key], Array.isArray(a) ? `${path}[${key}]` : `${path}.${key}`))
  return inside.length === 0 ? [path] : inside
}

/** What is at a path that `differences` named. */
export function valueAt(value: unknown, path: string): unknown {
  const names = path.slice(1).match(/[^.[\]]+/g) ?? []
  return names.reduce<unknown>((inner, name) => (isContainer(inner) ? inner[name] : undefined), value)
}

/**
 * The value with what `ctx.now()`, `ctx.random()` and `ctx.uuid()` have given the run replaced by names: these differ from run to run, and are
 * the same at every replay of one.
 */
export function withNamedValues(value: unknown, events: readonly RunEvent[]): unknown {
  const names = new Map<unknown, string>()
  for (const { type, step, data } of events) {
    const given = type === 'value_recorded' ? data?.['value'] : undefined
    if (given !== undefined && !names.has(given)) names.set(given, `<${step} ${names.size + 1}>`)
  }
  return names.size === 0 ? value : rename(value, names)
}

function rename(value: unknown, names: ReadonlyMap<unknown, string>): unknown {
  const name = names.get(value)
  if (name !== undefined) return name
  if (typeof value === 'string') {
    let text = value
    for (const [given, named] of names) if (String(given).length > 7) text = text.replaceAll(String(given), named)
    return text
  }
  if (Array.isArray(value)) return value.map((item) => rename(item, names))
  if (!isContainer(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, rename(inner, names)]))
}

function isContainer(value: unknown): value is Record<string, unknown> {
  if (Array.isArray(value)) return true
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
