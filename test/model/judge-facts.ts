import type { View, Violation } from './oracle.ts'
import type { ObservedRun } from './run-case.ts'

/**
 * What a step adds to the state it remembers as well, in the same commit: while the one is in force so is the other, whatever was rolled back or
 * rewound. A copy begins with the state of its origin, and with none of the facts about it.
 */
export function judgeFacts(view: View, { info, events, listNow, facts }: ObservedRun): Violation[] {
  if (!view.seen.features.facts || info.forkedFrom !== undefined || view.isDeleted) return []
  const remembering = (word: string) => {
    const node = view.nodes.get(Number(/\d+/.exec(word)?.[0]))?.node
    return node?.kind === 'step' && node.remembers === true
  }
  const violations: Violation[] = []
  const say = (rule: string, what: string) => violations.push({ rule, what: `thread "${info.threadId}": ${what}` })
  for (const word of listNow.filter(remembering))
    if (!facts.includes(word)) say('fact_lost', `${word} is in the state, and no fact: ${facts.join(' ')}`)
  // Another attempt takes what was undone out of the state; facts stay as they are (docs/guides/memory.md).
  const isRebuilt = events.some(({ type, data }) => type === 'state_updated' && data?.['rebuilt'] !== undefined)
  const isTakenOut = isRebuilt && events.some(({ type }) => type === 'step_undone')
  for (const word of facts)
    if (!listNow.includes(word) && !isTakenOut) say('fact_stays', `${word} is a fact, and not in the state: ${listNow.join(' ')}`)
  const isLogged = events.some(({ type, data }) => type === 'memory_written' && data?.['facts'] !== undefined)
  if (facts.length > 0 && !isLogged) say('fact_foreign', `it knows ${facts.join(' ')}, and its log has none of it`)
  return violations
}
