import { HoldfastError } from './errors.ts'
import { refuseUnknownOptions } from './known-options.ts'

/** Takes a state of one version to the next. Synchronous and pure: the value given is frozen. */
// biome-ignore lint/suspicious/noExplicitAny: what an old version looked like is known to the migration only
export type Migration = (value: any) => unknown

export interface StateOptions<S> {
  /** Rises by one with every change of the state's shape. From 1. */
  readonly version: number
  /** The state of a new thread. */
  readonly initial: () => S
  /**
   * Migrations by the version they start from. They may begin later than 1 once no old state is left, and go on without
   * a gap up to `version`. Key 0 takes a state written without a definition; without it, such a state is laid over `initial()`.
   */
  readonly migrations?: Readonly<Record<number, Migration>>
}

/** A thread's state: its shape, its version and the way there from older versions. */
export interface StateDefinition<S = unknown> {
  readonly version: number
  readonly initial: () => S
  readonly migrations: Readonly<Record<number, Migration>>
}

/** Defines a versioned state. Refused with `invalid_input` if the migrations leave a gap. */
export function state<S>(options: StateOptions<S>): StateDefinition<S> {
  refuseUnknownOptions('state', options, { version: true, initial: true, migrations: true })
  const { version, initial } = options
  if (!Number.isSafeInteger(version) || version < 1)
    throw invalid(`A state's version is a whole number from 1; got ${String(version)}.`)
  if (typeof initial !== 'function') throw invalid('A state needs `initial`, a function that returns the state of a new thread.')
  const migrations: Record<number, Migration> = {}
  for (const [key, migration] of Object.entries(options.migrations ?? {})) {
    const from = Number(key)
    if (!Number.isSafeInteger(from) || String(from) !== key || from < 0 || from >= version) {
      throw invalid(`Migrations are keyed by the version they start from, 0 to ${version - 1}; got ${JSON.stringify(key)}.`)
    }
    if (typeof migration !== 'function') throw invalid(`The migration from version ${key} is not a function.`)
    migrations[from] = migration
  }
  const lowest = Math.min(version - 1 || version, ...Object.keys(migrations).map(Number))
  for (let from = lowest; from < version; from++) {
    if (!migrations[from])
      throw invalid(`There is no migration from version ${from} to ${from + 1} of the state; add migrations[${from}].`)
  }
  return Object.freeze({ version, initial, migrations: Object.freeze(migrations) })
}

/**
 * The state at the definition's version, made from one of `fromVersion` (0: written without a definition; undefined at 0:
 * nothing written yet). Nothing is changed in place. A newer state is refused with `schema_too_new`, a migration that
 * is missing or throws with `invalid_input`.
 */
export function migrateState<S>(
  definition: StateDefinition<S>,
  value: unknown,
  fromVersion: number,
): { value: S; version: number } {
  const { version, migrations } = definition
  if (fromVersion > version) {
    throw new HoldfastError(
      'schema_too_new',
      `The state has version ${fromVersion}, this code knows ${version}. Deploy the newer code; nothing was changed.`,
      { details: { found: fromVersion, known: version } },
    )
  }
  if (fromVersion === 0 && (value === undefined || !migrations[0])) return { value: fromUntyped(definition, value) as S, version }
  let current = value
  for (let from = fromVersion; from < version; from++) {
    const migration = migrations[from]
    if (!migration) throw invalid(`The state has version ${from} and there is no migration from it. Add migrations[${from}].`)
    current = call(() => migration(current), `The migration of the state from version ${from} to ${from + 1}`)
  }
  return { value: current as S, version }
}

function fromUntyped(definition: StateDefinition, value: unknown): unknown {
  const initial = call(definition.initial, '`initial` of the state')
  if (value === undefined) return initial
  return isPlainObject(initial) && isPlainObject(value) ? { ...initial, ...value } : value
}

function call(make: () => unknown, what: string): unknown {
  let made: unknown
  try {
    made = make()
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause)
    throw invalid(`${what} threw: ${message}. The stored state is unchanged.`, cause)
  }
  if (made instanceof Promise) {
    made.catch(() => {})
    throw invalid(`${what} returned a promise. It has to be synchronous.`)
  }
  if (made === undefined) throw invalid(`${what} returned nothing. It has to return the state.`)
  return made
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

function invalid(message: string, cause?: unknown): HoldfastError {
  return new HoldfastError('invalid_input', message, cause === undefined ? {} : { cause })
}
