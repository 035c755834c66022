import type { View, Violation } from './oracle.ts'
import type { Sending } from './program.ts'

/** One key is one effect: nothing happens twice, and what nobody vouches for is not sent twice. */
export function judgeEffects(view: View): Violation[] {
  const violations: Violation[] = []
  const happening = new Map<string, number>()
  const underWay = new Set<string>()
  /** Keys of which a person said last that nothing had happened: whether that was news. */
  const decided = new Map<string, boolean>()
  const sendings = new Map<string, number>()
  /** Which call of which run sent last under a key. */
  const owners = new Map<string, string>()
  const recorded = new Set<string>()
  // Whoever lost the lease may still come to the end of the one sending that it has under way. A crash ends the leases of the other worker, too: the
  // clock is moved past them.
  const endsLeases = view.given.hasSecondWorker ? ['lost_lease', 'crash'] : ['lost_lease']
  const zombies = view.journal.count((note) => note.of === 'fault' && endsLeases.includes(note.fault.kind))
  for (const note of view.journal.notes) {
    switch (note.of) {
      case 'sent': {
        const node = view.nodeAt(note.at)?.node
        const owner = owners.get(note.key)
        if (node?.kind === 'effect' && node.key === undefined && owner !== undefined && owner !== `${note.run} ${note.at}`)
          violations.push({ rule: 'key_shared', what: `${note.at} of run "${note.run}" has the key of ${owner}: ${note.key}` })
        owners.set(note.key, `${note.run} ${note.at}`)
        if (recorded.has(note.key) && zombies === 0)
          violations.push({ rule: 'sent_again', what: `effect ${note.at} was sent under ${note.key}, which had its result` })
        if (node?.kind !== 'effect' || node.declared !== 'neither') break
        if (underWay.has(note.key))
          violations.push({
            rule: 'blind_repeat',
            what: `effect ${note.at} was sent again under ${note.key}, and nobody knew whether it had happened`,
          })
        const place = `${note.run} ${note.at}`
        const nth = sendings.get(place) ?? 0
        sendings.set(place, nth + 1)
        const sending: Sending | undefined = node.sendings[nth]
        if (sending === 'not_happened') underWay.delete(note.key)
        else underWay.add(note.key)
        break
      }
      case 'happened':
        happening.set(note.key, (happening.get(note.key) ?? 0) + 1)
        if ((happening.get(note.key) as number) > 1 + zombies)
          violations.push({ rule: 'effect_twice', what: `effect ${note.at} happened twice under ${note.key}` })
        break
      case 'resolved':
        if (note.happened === false) decided.set(note.key, underWay.delete(note.key))
        else if (note.happened === 'refused' && decided.get(note.key) === true) underWay.add(note.key)
        break
      case 'undo':
        if (note.key === undefined || !note.ok) break
        happening.delete(note.key)
        underWay.delete(note.key)
        recorded.delete(note.key)
        owners.delete(note.key)
        break
      case 'given': {
        // Its result is on record, under the key that it was sent with.
        const place = `${note.run} ${note.at}`
        for (const [key, owner] of owners) if (owner === place) recorded.add(key)
        break
      }
      default:
    }
  }
  return [...violations, ...judgeRows(view)]
}

/**
 * What `ctx.transaction` wrote is there once for each result, and for nothing else. One in a section that was undone as a whole runs again with
 * it: the undo of the section takes back what is in it (docs/guides/retries.md).
 */
function judgeRows(view: View): Violation[] {
  if (view.isDeleted || view.isRolledBack) return []
  const counts = new Map<string, number>()
  for (const { run, node } of view.seen.rows) counts.set(`${run} ${node}`, (counts.get(`${run} ${node}`) ?? 0) + 1)
  const undosAround = (run: string, at: string): number => {
    const above = new Set(view.nodeAt(at)?.above.map(({ id }) => id))
    const isAround = (undone: string) => above.has(view.nodeAt(undone)?.node.id ?? Number.NaN)
    return view.journal.count((note) => note.of === 'undo' && note.ok && note.run === run && isAround(note.at))
  }
  return [...counts].flatMap(([place, count]) =>
    count > 1 + undosAround(...(place.split(' ') as [string, string]))
      ? [{ rule: 'transaction_twice', what: `transaction ${place} is in the user's table ${count} times` }]
      : [],
  )
}
