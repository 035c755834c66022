import { HoldfastError } from './errors.ts'

/**
 * Makes an object read-only. Object.freeze lets changes of Maps, Sets and Dates through: theirs are refused by own methods. The prototype
 * stays as it is, so that they are compared, cloned and stored like any other.
 */
export function makeReadOnly(value: object): void {
  // One by one: defineProperties takes twice as long.
  for (const [method, guard] of guardsFor(value)) Object.defineProperty(value, method, guard)
  Object.freeze(value)
}

/** Whether the own properties of a Map, Set or Date are those that refuse changes. */
export function isReadOnly(value: object): boolean {
  const [first] = guardsFor(value)
  if (first === undefined || !Object.isFrozen(value)) return false
  return Object.getOwnPropertyDescriptor(value, first[0])?.get === first[1].get
}

/** The Map, Set or Date whose change was refused with this error. */
export function refusedChangeOf(error: unknown): object | undefined {
  return typeof error === 'object' && error !== null ? refused.get(error) : undefined
}

const refused = new WeakMap<object, object>()

/** Accessors: those are kept once for all objects that have them. */
type Guards = readonly (readonly [method: string, guard: { readonly get: () => (this: object) => never }])[]

function guardsOf(kind: string, methods: readonly string[], advice: string): Guards {
  return methods.map((method) => {
    function refuse(this: object): never {
      const error = new HoldfastError(
        'invalid_input',
        `The state is read-only: ${method}() of a ${kind} in it was refused, and it is as it was. ${advice}`,
      )
      refused.set(error, this)
      throw error
    }
    return [method, { get: () => refuse }]
  })
}

const throughDraft = 'Change it through a draft: ctx.update((draft) => …).'
const noGuards: Guards = []
const mapGuards = guardsOf('Map', ['set', 'delete', 'clear'], throughDraft)
const setGuards = guardsOf('Set', ['add', 'delete', 'clear'], throughDraft)
const dateGuards = guardsOf(
  'Date',
  Object.getOwnPropertyNames(Date.prototype).filter((name) => name.startsWith('set')),
  'Assign a new Date in ctx.update((draft) => …).',
)

function guardsFor(value: object): Guards {
  if (value instanceof Map) return mapGuards
  if (value instanceof Set) return setGuards
  return value instanceof Date ? dateGuards : noGuards
}
