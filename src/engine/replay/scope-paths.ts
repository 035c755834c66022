/** Whether a path lies in a scope. */
export function isInside(path: string, scope: string): boolean {
  return path.startsWith(`${scope}/`)
}

/** Where the calls of a scope's fallback stand. No name of a user's contains a bracket, so that they meet none of the scope's own. */
export function fallbackPath(scope: string): string {
  return `${scope}${fallbackMark}`
}

const fallbackMark = '[fallback]'

/** `gather/fetch` of `step:gather/fetch#2`. */
export function pathOf(key: string): string {
  return key.slice(key.indexOf(':') + 1, key.lastIndexOf('#'))
}

/** What is kept under the paths of the scopes around a path, from the inside out. */
export function* around<T>(path: string, byScope: ReadonlyMap<string, T>): Generator<T, void, void> {
  if (byScope.size === 0) return
  for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
    const found = byScope.get(path.slice(0, end))
    if (found !== undefined) yield found
  }
}

/** The path of the innermost of these scopes around a path; empty where there is none. */
export function innermost(path: string, byScope: ReadonlyMap<string, unknown>): string {
  if (byScope.size === 0) return ''
  for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
    if (byScope.has(path.slice(0, end))) return path.slice(0, end)
  }
  return ''
}

/** The name of a call without its scopes. */
export function lastPartOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}
