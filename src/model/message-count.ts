import type { Patch, Segments } from './patch-operation.ts'

/** How many messages a state has: the length of `state.messages`; null where that is no list. */
export function messageCountOf(state: unknown): number | null {
  const messages = typeof state === 'object' && state !== null ? (state as { messages?: unknown }).messages : undefined
  return Array.isArray(messages) ? messages.length : null
}

/** How many there are after a patch, without the state that it was made for. */
export function messageCountAfter(count: number | null, patch: Patch): number | null {
  let after = count
  for (const operation of patch) {
    const [name, path] = operation
    if (name === '=' && path.length === 0) after = messageCountOf(operation[2])
    if (path.length !== 1 || path[0] !== 'messages') continue
    if (name === '=') after = Array.isArray(operation[2]) ? operation[2].length : null
    else if (name === '-') after = null
    else if (name === 's') after = (after ?? 0) - operation[3] + operation[4].length
    else if (name === 'a') after = lengthOf(operation[2])
  }
  return after
}

function lengthOf(segments: Segments): number {
  let length = 0
  for (let i = 0; i < segments.length; i++) {
    const segment = segments[i]
    // A number is where copying starts; how many are copied is the one after it.
    length += typeof segment === 'number' ? (segments[++i] as number) : (segment as readonly unknown[]).length
  }
  return length
}
