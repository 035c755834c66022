import type { StepHandle, StepOptions } from '../../define/context.ts'
import type { FactMemory, Memory, ProfileMergeOptions, SessionMemory } from '../../define/memory.ts'

/** A call that is recorded as a step. */
export type RecordStep = <T>(name: string, body: (step: StepHandle<never>) => Promise<T>, options?: StepOptions<T>) => Promise<T>

/** What was read needs no commit of its own. */
const reading = { checkpoint: false } as const

/** `ctx.memory`: each call is recorded as a step that does only this. */
export function recordedMemory(record: RecordStep): Memory {
  return {
    session: recordedSession(record, (memory) => memory.session),
    of: (subject) => ({
      ...recordedFacts(record, (memory) => memory.of(subject)),
      profile: {
        get: <T>() => record<T>('memory.profile.get', (step) => step.memory.of(subject).profile.get<T>(), reading),
        merge: <T>(patch: Readonly<{ [key: string]: unknown }>, options?: ProfileMergeOptions) =>
          record<T>('memory.profile.merge', (step) => step.memory.of(subject).profile.merge<T>(patch, options)),
        history: (options) =>
          record('memory.profile.history', (step) => step.memory.of(subject).profile.history(options), reading),
      },
    }),
  }
}

function recordedFacts(record: RecordStep, of: (memory: Memory) => FactMemory): FactMemory {
  return {
    remember: (text, options) => record('memory.remember', (step) => of(step.memory).remember(text, options)),
    recall: (query, options) => record('memory.recall', (step) => of(step.memory).recall(query, options), reading),
    get: (id) => record('memory.get', (step) => of(step.memory).get(id), reading),
    list: (options) => record('memory.list', (step) => of(step.memory).list(options), reading),
    edit: (id, changes, options) => record('memory.edit', (step) => of(step.memory).edit(id, changes, options)),
    forget: (id, options) => record('memory.forget', (step) => of(step.memory).forget(id, options)),
    undo: (id, options) => record('memory.undo', (step) => of(step.memory).undo(id, options)),
    promote: (id, options) => record('memory.promote', (step) => of(step.memory).promote(id, options)),
  }
}

function recordedSession(record: RecordStep, of: (memory: Memory) => SessionMemory): SessionMemory {
  return {
    get: <T>(key: string) => record<T | undefined>('memory.session.get', (step) => of(step.memory).get<T>(key), reading),
    set: (key, value, options) => record('memory.session.set', (step) => of(step.memory).set(key, value, options)),
    delete: (key) => record('memory.session.delete', (step) => of(step.memory).delete(key)),
    list: () => record('memory.session.list', (step) => of(step.memory).list(), reading),
    of: (sessionId) => recordedSession(record, (memory) => of(memory).of(sessionId)),
  }
}
