import type { Core } from '../control/core.ts'
import type { FactMemory } from '../define/memory.ts'
import type { FactAct, FactOutcome } from '../memory/fact-acts.ts'
import { factMemory } from '../memory/fact-memory.ts'
import { type FactReading, SubjectFacts } from '../memory/subject-facts.ts'
import { HoldfastError } from '../model/errors.ts'

/** Facts from outside of runs: each call is written at once. */
export function clientFacts(core: Core, owner: string, subject: string): FactMemory {
  const { store, codec, embedder } = core
  const reading = { store, codec, owner, subject }
  return factMemory({
    ...{ reading, origin: {}, now: () => core.now(), findNearest: embedder?.nearestOf(owner, subject) },
    do: async (act) => write(core, reading, act, await core.now()),
  })
}

/** Where another writer was first, it is done again over what is there then. */
async function write(core: Core, reading: FactReading, act: FactAct, now: number): Promise<FactOutcome | null> {
  for (;;) {
    const facts = new SubjectFacts(reading)
    const outcome = await facts.do(act, now)
    if (facts.isEmpty) return outcome
    const { owner } = reading
    const records = await facts.records()
    const change = {
      owner,
      threadId: '',
      runId: null,
      guard: { kind: 'none' },
      events: [],
      records,
      isCheckpoint: false,
    } as const
    const answer = await core.committer.commit(change)
    if (answer.ok) {
      if (outcome?.isNew) core.embedder?.want(owner, reading.subject, [outcome.id])
      return outcome
    }
    if (answer.refusal !== 'record_changed')
      throw new HoldfastError('conflict', `Memory could not be written: ${answer.refusal}. Try again.`, { retryable: true })
  }
}
