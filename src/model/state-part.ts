import { type Kind, kindOf } from './container.ts'
import { HoldfastError } from './errors.ts'
import { followPath, parsePath, type StatePath } from './state-path.ts'

/** Which part of a state is wanted. */
export interface StatePart {
  /** What it leads to: `messages[3].text`, or its keys. Default: the whole state. */
  readonly path?: StatePath
  /** Levels of lists, objects, Maps and Sets, from 1: what is deeper is shown as `Omitted`. Default: all. */
  readonly depth?: number
  /** Entries of each of them, from 0: the rest of a longer one is one more entry, `Omitted`. Default: all. */
  readonly limit?: number
}

/** Stands for what was left out of a part of a state. */
export class Omitted {
  /** What it is: a whole list, object, Map or Set, or the rest of one (`entries`). */
  readonly kind: 'list' | 'object' | 'map' | 'set' | 'entries'
  /** How many entries were left out. */
  readonly size: number

  constructor(kind: Omitted['kind'], size: number) {
    this.kind = kind
    this.size = size
  }

  toString(): string {
    return `… ${this.size} ${this.size === 1 ? 'entry' : 'entries'}`
  }
}

/** The key under which the rest of an object or Map is left out. */
const restKey = '…'

/** The part of a state that is wanted; undefined where a path leads nowhere. Nothing of it is shared with the state where something is left out. */
export function partOf(state: unknown, { path = [], depth, limit }: StatePart): unknown {
  const most = { depth: checkNumber('depth', depth, 1), limit: checkNumber('limit', limit, 0) }
  const { value } = followPath(state, parsePath(path))
  return depth === undefined && limit === undefined ? value : cut(value, most.depth, most.limit)
}

const names: Partial<Record<Kind, Omitted['kind']>> = {
  array: 'list',
  object: 'object',
  'null-object': 'object',
  map: 'map',
  set: 'set',
}

function cut(value: unknown, depth: number, limit: number): unknown {
  const kind = kindOf(value)
  const name = names[kind]
  if (name === undefined) return value
  const size = sizeOf(value as object, kind)
  if (depth === 0) return new Omitted(name, size)
  const rest = size > limit ? [new Omitted('entries', size - limit)] : []
  const inside = (item: unknown) => cut(item, depth - 1, limit)
  switch (kind) {
    case 'array':
      return [...(value as unknown[]).slice(0, limit).map(inside), ...rest]
    case 'set':
      return new Set([...[...(value as Set<unknown>)].slice(0, limit), ...rest])
    case 'map': {
      const entries = [...(value as Map<unknown, unknown>)].slice(0, limit).map(([key, item]) => [key, inside(item)] as const)
      return new Map<unknown, unknown>([...entries, ...rest.map((one) => [restKey, one] as const)])
    }
    default: {
      const entries = Object.entries(value as object)
        .slice(0, limit)
        .map(([key, item]) => [key, inside(item)] as const)
      return Object.fromEntries([...entries, ...rest.map((one) => [restKey, one] as const)])
    }
  }
}

function sizeOf(container: object, kind: Kind): number {
  if (kind === 'array') return (container as unknown[]).length
  return kind === 'map' || kind === 'set' ? (container as Map<unknown, unknown>).size : Object.keys(container).length
}

function checkNumber(name: string, value: unknown, least: number): number {
  if (value === undefined) return Number.POSITIVE_INFINITY
  if (Number.isInteger(value) && (value as number) >= least) return value as number
  throw new HoldfastError('invalid_input', `${name} is ${String(value)}; it must be a whole number from ${least}.`)
}
