import type { Holdfast } from 'holdfast'

/**
 * What an envoy waits for: sends its signals, answers its question, rolls it back once and lets it go on. Looks at what has
 * happened and does what is missing, so that it can be killed and begin again at any point. What was accepted once is not given
 * again: should it get lost, the envoy waits for ever.
 */
export async function serveEnvoy(hf: Holdfast, runId: string, given: Given): Promise<void> {
  // One read while there is nothing to do: it is asked for again and again.
  const { items } = await hf.runs.list({ status: ['waiting', 'paused'] })
  const found = items.find(({ id }) => id === runId)
  if (found === undefined) return
  const { status, reason } = found
  const run = await hf.runs.get(runId)
  // Later than the status: the run may have gone on, so what it is to be done to depends on these.
  const events = await run.events()
  const types = events.map(({ type }) => type)
  const hasCrossed = events.some(({ type, step }) => type === 'step_completed' && step === 'cross')
  const isRolledBack = types.includes('run_rolled_back')
  if (status === 'paused' && isRolledBack) await run.resume()
  if (status !== 'waiting') return
  const give = async (name: string, act: () => Promise<void>) => {
    if (given.has(name)) return
    await act()
    given.note(name)
  }
  if (reason === 'person') await give('name', () => hf.answer(runId, 'name', 'Ann', { by: 'guard' }).catch(ignoreAnswered))
  if (reason !== 'signal') return
  if (!types.includes('question_asked')) await give('permit', () => hf.signal(runId, 'permit', 'granted'))
  else if (isRolledBack) await give('turn', () => hf.signal(runId, 'turn', 'on'))
  else if (hasCrossed && !types.includes('run_resumed')) await run.rollback('gate')
}

/** What was given so far, in this life or an earlier one. */
export interface Given {
  has(name: string): boolean
  note(name: string): void
}

/** It was this very answer, the first time it was given. */
export function ignoreAnswered(error: unknown): void {
  if ((error as { code?: unknown }).code !== 'already_answered') throw error
}
