import { isDeepStrictEqual } from 'node:util'
import { mergePatch } from '../../../src/model/merge-patch.ts'
import type { StoreDump } from '../bed/store-dump.ts'

/** What is remembered is what the log says, at any moment: no value or fact without its step, no profile merged by half. */
export function violationsOfMemory({ threads, memory }: StoreDump): string[] {
  const sessions = new Map<string, unknown>()
  const profiles = new Map<string, { version: number; profile: unknown; patches: unknown[] }>()
  for (const { data, type } of threads.flatMap(({ log }) => log)) {
    if (type !== 'memory_written') continue
    const { session, key, value, deleted, subject, patch, facts } = data as Readonly<Record<string, string>>
    if (facts !== undefined) continue
    if (subject !== undefined) {
      const { version, profile, patches } = profiles.get(subject) ?? { version: 0, profile: {}, patches: [] }
      profiles.set(subject, { version: version + 1, profile: mergePatch(profile, patch), patches: [...patches, patch] })
    } else if (deleted !== undefined) sessions.delete(`${session} ${key}`)
    else sessions.set(`${session} ${key}`, value)
  }
  const kept = new Map<string, unknown>()
  for (const { collection, parent, key, value } of memory) {
    if (collection === 'session')
      kept.set(`${parent} ${key.slice(`${parent?.length}:${parent}`.length)}`, (value as { value: unknown }).value)
  }
  const violations: string[] = []
  if (!isDeepStrictEqual(kept, sessions)) violations.push(`sessions have ${shown(kept)}, the log says ${shown(sessions)}`)
  for (const [subject, { version, profile, patches }] of profiles) {
    const found = memory.find(({ collection, key }) => collection === 'profile' && key === subject)
    const changes = memory.filter(({ collection, parent }) => collection === 'profile_change' && parent === subject)
    const changed = changes.map(({ value }) => (value as { patch: unknown }).patch)
    if (found?.version !== version || !isDeepStrictEqual(found.value, profile))
      violations.push(
        `the profile of ${subject} is ${JSON.stringify(found)}, the log says ${JSON.stringify({ version, profile })}`,
      )
    if (!isDeepStrictEqual(changed, patches))
      violations.push(`the history of ${subject} has ${JSON.stringify(changed)}, the log ${JSON.stringify(patches)}`)
  }
  const unknown = memory.filter(({ collection, key }) => collection === 'profile' && !profiles.has(key))
  return [
    ...violations,
    ...violationsOfFacts({ threads, memory }),
    ...unknown.map(({ key }) => `there is a profile of ${key}, and nothing of it in the log`),
  ]
}

/** Every change of a fact is in the log once, with the step that made it, and the other way round. */
function violationsOfFacts({ threads, memory }: Pick<StoreDump, 'threads' | 'memory'>): string[] {
  const logged = threads
    .flatMap(({ log }) => log)
    .filter(({ type, data }) => type === 'memory_written' && data['facts'] !== undefined)
    .flatMap(({ step, runId, data }) => (data['facts'] as string[]).map((id) => `${id} by ${step} of ${runId}`))
  const facts = memory.filter(({ collection }) => collection === 'fact')
  const changed = facts.flatMap(({ key, parent, value }) => {
    const { history } = value as { readonly history: readonly { readonly step?: string; readonly runId?: string }[] }
    const id = key.slice(`${parent?.length}:${parent}`.length)
    return history.map(({ step, runId }) => `${id} by ${step} of ${runId}`)
  })
  const hasSource = facts.every(({ value }) => typeof (value as { source: { step?: string } }).source.step === 'string')
  return [
    ...(hasSource ? [] : ['a fact has no source']),
    ...(isDeepStrictEqual(logged.toSorted(), changed.toSorted())
      ? []
      : [`facts were changed by ${JSON.stringify(changed)}, the log says ${JSON.stringify(logged)}`]),
  ]
}

function shown(values: ReadonlyMap<string, unknown>): string {
  return JSON.stringify([...values])
}
