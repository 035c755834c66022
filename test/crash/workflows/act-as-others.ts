import type { Holdfast } from 'holdfast'

/**
 * Does what a run of `waitsForOthers`, `notifiesOthers` or `agent` waits for: sends its signals, answers its question, rolls it back once and
 * resumes it. Each call reads what has happened and does what is missing, so the process can be killed at any point. What was accepted
 * once is not sent again: if it got lost, the run would wait forever.
 */
export async function actAsOthers(hf: Holdfast, runId: string, sent: Sent): Promise<void> {
  // One read while there is nothing to do, because this is called in a loop.
  const { items } = await hf.runs.list({ status: ['waiting', 'paused'] })
  const found = items.find(({ id }) => id === runId)
  if (found === undefined) return
  const { status, reason } = found
  const run = await hf.runs.get(runId)
  // Read after the status: the run may have continued, so these decide what to do.
  const events = await run.events()
  const types = events.map(({ type }) => type)
  const hasCrossed = events.some(({ type, step }) => type === 'step_completed' && step === 'cross')
  const isRolledBack = types.includes('run_rolled_back')
  if (status === 'paused' && isRolledBack) await run.resume()
  if (status !== 'waiting') return
  const sendOnce = async (name: string, send: () => Promise<void>) => {
    if (sent.has(name)) return
    await send()
    sent.note(name)
  }
  if (reason === 'person') {
    const asked = events.findLast(({ type }) => type === 'question_asked')?.step ?? 'name'
    const answer = asked.endsWith('approve') ? { approved: true } : 'Ann'
    await sendOnce(asked, () => hf.answer(runId, asked, answer, { by: 'guard' }).catch(ignoreAnswered))
  }
  if (reason !== 'signal') return
  if (!types.includes('question_asked')) await sendOnce('permit', () => hf.signal(runId, 'permit', 'granted'))
  else if (isRolledBack) await sendOnce('turn', () => hf.signal(runId, 'turn', 'on'))
  else if (hasCrossed && !types.includes('run_resumed')) await run.rollback('gate')
}

/** What was sent so far, by this process or an earlier one. */
export interface Sent {
  has(name: string): boolean
  note(name: string): void
}

/** The same answer was given before. */
export function ignoreAnswered(error: unknown): void {
  if ((error as { code?: unknown }).code !== 'already_answered') throw error
}
