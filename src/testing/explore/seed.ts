import { HoldfastError } from '../../index.ts'
import type { Case, Fault, FaultPoint } from './play-case.ts'

/** A case as text, from which it can be played again: `crash before effect_completed send #1`, or two of these. */
export function formatSeed({ faultPoints, order }: Case): string {
  return [...(order === undefined ? [] : [`order ${order}`]), ...faultPoints.map(format)].join(' & ')
}

export function parseSeed(seed: string): Case {
  const parts = seed === '' ? [] : seed.split(' & ')
  const [, order] = /^order (\d+)$/.exec(parts[0] ?? '') ?? []
  const faultPoints = parts.slice(order === undefined ? 0 : 1).map(parse)
  return { faultPoints, ...(order !== undefined && { order: Number(order) }) }
}

function format({ fault, when, write }: FaultPoint): string {
  if (!('name' in write)) return `${fault} ${when} ${when === 'claim' ? '' : 'write '}${write.nth}`
  return `${fault} ${when} ${write.name}${write.nth === 1 ? '' : ` (${write.nth})`}`
}

function parse(text: string): FaultPoint {
  const [, fault, when, rest = ''] = /^(crash|lostAnswer|zombie|slowCommit) (before|after|claim) (.+)$/s.exec(text) ?? []
  if (fault === undefined || when === undefined)
    throw new HoldfastError('invalid_input', `"${text}" is not the seed of a case: take it from failures of a report.`)
  const faultPoint = { fault: fault as Fault, when: when as FaultPoint['when'] }
  const [, nth] = /^(?:write )?(\d+)$/.exec(rest) ?? []
  if (nth !== undefined) return { ...faultPoint, write: { nth: Number(nth) } }
  const [, name = rest, count = '1'] = /^(.*) \((\d+)\)$/s.exec(rest) ?? []
  return { ...faultPoint, write: { name, nth: Number(count) } }
}
