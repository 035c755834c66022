import type { Node, Program } from './program.ts'

/** The errors that a program's function may end with, by name: `x12` for node 12, or a code of Holdfast's. */
export function possibleErrors(program: Program): Set<string> {
  const nodes: Node[] = [...program.tapes, ...(program.stages ?? []).flat()]
  const errors = new Set(nodes.flatMap((node) => [...errorsOf(node)]))
  if (program.timeoutMs !== undefined) errors.add('timeout')
  return errors
}

/** Those that come out of a node. One that may come only after another attempt around it used up its own counts as well. */
export function errorsOf(node: Node): Set<string> {
  const own = `x${node.id}`
  switch (node.kind) {
    case 'step':
      if (node.onFailure !== undefined) return new Set()
      // A slow machine can let any attempt time out.
      if (node.timeoutMs !== undefined) return new Set([own, 'timeout'])
      return new Set(node.fails < node.attempts ? [] : [own])
    case 'map':
      return new Set(node.fails.some((fails) => fails >= node.attempts) ? [own] : [])
    case 'throw':
      return new Set([own])
    case 'begin':
      return new Set([...(node.isFailing ? [own] : []), ...errorsOf(node.inner)])
    case 'seq':
      return union(node.nodes)
    case 'scope':
    case 'loop':
      return errorsOf(node.body)
    case 'section':
      return node.onFailure === undefined ? errorsOf(node.body) : new Set()
    case 'all':
    case 'race':
      return union(node.branches)
    case 'any':
      return node.branches.every((branch) => errorsOf(branch).size > 0) ? union(node.branches).add('any') : new Set()
    case 'settled':
      return new Set(node.isStrict && union(node.branches).size > 0 ? [own] : [])
    case 'try':
      return errorsOf(node.handler)
    case 'call':
      return node.isDetached ? new Set() : possibleErrors(node.child)
    default:
      return new Set()
  }
}

function union(nodes: readonly Node[]): Set<string> {
  return new Set(nodes.flatMap((node) => [...errorsOf(node)]))
}
