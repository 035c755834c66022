/** Which recorded failures an error came from, so that `retry` reopens those and no others. */
const sources = new WeakMap<Error, readonly string[]>()

export function tagSource<E extends Error>(error: E, keys: readonly string[]): E {
  sources.set(error, keys)
  return error
}

/** The failures behind an error that ended a run, also where the function wrapped it. */
export function sourcesOf(error: unknown): readonly string[] {
  try {
    return findSources(error)
  } catch {
    // User code throws anything, also what throws when it is looked at.
    return []
  }
}

function findSources(error: unknown): readonly string[] {
  for (let at = error, depth = 0; at instanceof Error && depth < 20; at = at.cause, depth++) {
    const keys = sources.get(at)
    if (keys !== undefined) return keys
    if (at instanceof AggregateError) return at.errors.flatMap((inner) => findSources(inner))
  }
  return []
}
