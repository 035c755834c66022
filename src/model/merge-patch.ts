import { put } from './container.ts'

/**
 * A deep merge: objects are merged key by key, everything else is replaced, and null deletes. Keys are plain data, `__proto__` too. Shares
 * nothing that is changed with its arguments.
 */
export function mergePatch(base: unknown, patch: unknown): unknown {
  if (!isPlainObject(patch)) return patch
  const merged: Record<string, unknown> = {}
  if (isPlainObject(base)) for (const key of Object.keys(base)) put(merged, key, base[key])
  for (const key of Object.keys(patch)) {
    const value = patch[key]
    if (value === undefined) continue
    if (value === null) delete merged[key]
    else put(merged, key, mergePatch(Object.hasOwn(merged, key) ? merged[key] : undefined, value))
  }
  return merged
}

export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
