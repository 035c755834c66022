import type { FactMemory } from '../../define/memory.ts'
import type { RememberAct } from '../../memory/fact-acts.ts'
import { factMemory } from '../../memory/fact-memory.ts'
import { type LoggedAct, SubjectFacts } from '../../memory/subject-facts.ts'
import type { RecalledFact } from '../../model/fact.ts'
import type { KeyedRecord, RecordChange } from '../../model/record.ts'
import type { CallHost } from '../execution/call-host.ts'
import { reportLateWrite } from '../execution/end-errors.ts'
import type { Call } from './calls.ts'

/** What an attempt of a step recalled, as the log has it (`memory_recalled`). */
interface LoggedRecall {
  readonly subject: string
  readonly query: string
  readonly facts: readonly Pick<RecalledFact, 'id' | 'score' | 'scores'>[]
}

/** The facts that one attempt of a step learns and recalls. Acts are done again where another writer was first; the body does not run for that again. */
export class AttemptFacts {
  readonly #host: CallHost
  readonly #call: Call
  readonly #body: { readonly isOver: boolean }
  readonly #subjects = new Map<string, SubjectFacts>()
  readonly recalls: LoggedRecall[] = []
  #records: readonly RecordChange[] = []
  readonly #learned: { readonly subject: string; readonly id: string }[] = []
  #isFork: Promise<boolean> | undefined

  constructor(host: CallHost, call: Call, body: { readonly isOver: boolean }) {
    this.#host = host
    this.#call = call
    this.#body = body
  }

  of(subject: string): FactMemory {
    const { store, codec, owner, runId, threadId, engine } = this.#host.run
    const reading = { store, codec, owner, subject }
    const facts = this.#subjects.get(subject) ?? new SubjectFacts(reading)
    this.#subjects.set(subject, facts)
    return factMemory({
      ...{ reading, origin: { runId, threadId, step: this.#call.path, count: this.#call.count } },
      now: () => this.#host.clock.now(),
      // It takes its turn when it is called: one that the body does not await is kept.
      do: async (act) => {
        if (this.#body.isOver) throw reportLateWrite(this.#host.run, this.#call.path, `step.memory.${act.act}`)
        const outcome = await facts.do(act.act === 'remember' ? () => this.#inFork(act) : act, this.#host.clock.now())
        if (outcome?.isNew) this.#learned.push({ subject, id: outcome.id })
        return outcome
      },
      findNearest: engine.embedder?.nearestOf(owner, subject),
      own: () => facts.settled.then(() => facts),
      recalled: (query, recalled) =>
        void this.recalls.push({ subject, query, facts: recalled.map(({ id, score, scores }) => ({ id, score, scores })) }),
    })
  }

  get isEmpty(): boolean {
    return [...this.#subjects.values()].every(({ isEmpty }) => isEmpty)
  }

  get logged(): readonly LoggedAct[] {
    return [...this.#subjects.values()].flatMap(({ logged }) => logged)
  }

  get records(): readonly RecordChange[] {
    return this.#records
  }

  async prepare(): Promise<void> {
    for (const facts of this.#subjects.values()) await facts.settled
    await this.#make()
  }

  /** After a record was refused, which is now this; null where it is gone. */
  async again(found: KeyedRecord | null): Promise<void> {
    for (const facts of this.#subjects.values()) if (found === null || facts.writes(found)) await facts.again(found)
    await this.#make()
  }

  /** From now on what was learned can be embedded. */
  answered(): void {
    const { owner, engine } = this.#host.run
    for (const { subject, id } of this.#learned) engine.embedder?.want(owner, subject, [id])
  }

  async #make(): Promise<void> {
    this.#records = (await Promise.all([...this.#subjects.values()].map((facts) => facts.records()))).flat()
  }

  /** What a fork learns stays its own. Its log begins with where it comes from. */
  async #inFork(act: RememberAct): Promise<RememberAct> {
    const { store, owner, threadId } = this.#host.run
    this.#isFork ??= store
      .readLog({ owner, threadId, types: ['thread_forked'], bare: true, toSeq: 1 })
      .then(({ length }) => length > 0)
    return (await this.#isFork) ? { ...act, fork: threadId } : act
  }
}
