import { isDeepStrictEqual } from 'node:util'
import type { ScenarioResult } from '../bed/crash-test-bed.ts'
import type { EffectClass } from '../workflows/recorded-calls.ts'

/** The classes of the effects in the workflows, by name. */
const classOf: Readonly<Record<string, EffectClass>> = {
  pay: 'idempotent',
  share: 'idempotent',
  mail: 'check',
  post: 'neither',
  book: 'neither',
  notify: 'idempotent',
}

/** failure-model 2.3: what each class of effect promises, counted at the provider. */
export function violationsOfEffects({ account, processes, journal }: ScenarioResult): string[] {
  const violations: string[] = []
  const end = processes.at(-1)?.dump
  for (const key of new Set(account.calls.map((call) => call.key))) {
    const calls = account.calls.filter((call) => call.key === key)
    const name = calls[0]?.name ?? ''
    const acted = account.acted.get(key) ?? 0
    const declared = classOf[name]
    if (calls.some((call) => call.name !== name)) violations.push(`key ${key} was used by several effects`)
    if (calls.some((call) => !isDeepStrictEqual(call.body, calls[0]?.body)))
      violations.push(`key ${key} was sent with different bodies`)
    if (declared === undefined) continue
    if (acted > 1) violations.push(`${name} happened ${acted} times under ${key}`)
    if (end?.runs.every(({ status }) => status === 'completed') && acted !== 1)
      violations.push(`${name} happened ${acted} times under ${key}`)
    const denials = journal.filter((note) => note.kind === 'resolved' && note.key === key && !note.happened).length
    if (declared === 'neither' && calls.length > 1 + denials) {
      violations.push(`${name} was sent ${calls.length} times under ${key}, and a person allowed ${denials} more`)
    }
  }
  return violations
}
