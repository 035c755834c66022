/** Whether a path lies in a scope. */
export function isInside(path: string, scope: string): boolean {
  return path.startsWith(`${scope}/`)
}

/** The path of the calls in a scope's fallback. Names that users give contain no brackets, so it can't be the path of another call. */
export function fallbackPath(scope: string): string {
  return `${scope}${fallbackMark}`
}

const fallbackMark = '[fallback]'

export function isInScopeOrFallback(path: string, scope: string): boolean {
  return isInside(path, scope) || isInside(path, fallbackPath(scope))
}

/** The entries of the scopes around a path, from the inside out. */
export function* around<T>(path: string, byScope: ReadonlyMap<string, T>): Generator<T, void, void> {
  if (byScope.size === 0) return
  for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
    const found = byScope.get(path.slice(0, end))
    if (found !== undefined) yield found
  }
}

/** The path of the innermost of these scopes around a path; empty if there is none. */
export function innermost(path: string, byScope: ReadonlyMap<string, unknown>): string {
  if (byScope.size === 0) return ''
  for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
    if (byScope.has(path.slice(0, end))) return path.slice(0, end)
  }
  return ''
}
