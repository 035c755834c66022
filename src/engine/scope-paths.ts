/** Whether a path lies in a scope. */
export function isInside(path: string, scope: string): boolean {
  return path.startsWith(`${scope}/`)
}

/** Whether an update, known by its scope and count, was made in a scope. */
export function isUpdateInside(key: string, scope: string): boolean {
  const path = key.slice(0, key.lastIndexOf('#'))
  return path === scope || isInside(path, scope)
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
