import { isDeepStrictEqual } from 'node:util'
import type { RunEvent } from 'holdfast'
import type { CopyOptions } from './copies.ts'

const ended = ['completed', 'failed', 'cancelled']
const ends = ['run_completed', 'run_failed', 'run_cancelled']
const turns = [...ends, 'run_queued', 'run_started', 'run_retried', 'run_resumed', 'run_rolled_back']

/** Rewinds the thread of a run, and looks whether that was possible, what has become of state and log, and that the run can't go on. */
export async function rewindAndLook(fraction: number, { hf, journal, nth, rootId, say }: CopyOptions): Promise<void> {
  const thread = hf.thread(rootId)
  const checkpoints = await thread.checkpoints()
  const to = checkpoints[Math.floor(fraction * checkpoints.length)]
  if (to === undefined) return
  const run = await hf.runs.get(rootId)
  const statusBefore = (await run.info()).status
  const head = checkpoints.at(-1)?.seq ?? 0
  const deletions = deletionNotes(journal)
  const before = await run.events()
  const rewound = async () => (await hf.debug.audit(rootId)).filter(({ decision }) => decision === 'rewound')
  const earlier = (await rewound()).length
  journal.write({ of: 'rewinding', thread: rootId })
  try {
    await thread.rewind(to.checkpoint, { by: `dana ${nth}` })
  } catch (error) {
    const now = (await thread.checkpoints()).at(-1)?.seq
    const { status } = await run.info()
    const isOver = ended.includes(statusBefore) && ended.includes(status) && now === head
    if ((error as { code?: string }).code === 'conflict' && isOver)
      say(`rewind_refused: the run is ${status}, and its thread can't be rewound: ${(error as Error).message}`)
    throw error
  }
  const made = (await rewound()).slice(earlier).find(({ by }) => by === `dana ${nth}`)
  if (made === undefined) {
    // Whoever is where the thread ends has nothing to write.
    const isDeleted = journal.notes.some((note) => note.of === 'act' && note.act.kind === 'delete')
    if (to.seq < head && !isDeleted)
      say(`rewind_unsaid: the thread was rewound to ${to.checkpoint}, and no one is on record for it`)
    return
  }
  journal.write({ of: 'rewound', thread: rootId })
  // What is read now may be of the thread's next life.
  if (deletionNotes(journal) !== deletions || deletions % 2 === 1) return
  const seq = Number(made.checkpoint.slice(made.checkpoint.lastIndexOf('@') + 1))
  const events = await run.events()
  const last = events.findLast((event) => event.seq < seq && turns.includes(event.type))
  if (last === undefined || !ends.includes(last.type)) say(`rewind_in_flight: rewound at ${seq}, after ${last?.type} of the run`)
  if (!isDeepStrictEqual(plain(events.slice(0, before.length)), plain(before)))
    say(`rewind_log: the log of the run is another one since ${made.checkpoint}`)
  const [then, now] = [await thread.stateAt(to.checkpoint), await thread.stateAt(made.checkpoint)]
  if (!isDeepStrictEqual(then, now))
    say(`rewind_state: rewound to ${to.checkpoint}, which had ${JSON.stringify(then)}, and has ${JSON.stringify(now)}`)
  const [first] = checkpoints.filter(({ runId }) => runId === rootId)
  const tries = {
    retry: () => run.retry(),
    resume: () => run.resume(),
    rollback: () => run.rollback((first ?? to).checkpoint),
  }
  for (const [name, attempt] of Object.entries(tries)) {
    const code = await attempt().then(
      () => 'taken',
      (error: { code?: string }) => error.code,
    )
    if (code !== 'conflict' && code !== 'run_not_found' && code !== 'thread_deleted')
      say(`rewind_then_${name}: ${name} of the run after its thread was rewound: ${code}`)
  }
}

/** Each deletion has a note where it begins and one where it ends. */
function deletionNotes(journal: CopyOptions['journal']): number {
  return journal.notes.filter((note) => note.of === 'act' && note.act.kind === 'delete').length
}

function plain(events: readonly RunEvent[]): unknown {
  return events.map(({ seq, type, at, step, attempt, data }) => ({ seq, type, at, step, attempt, data }))
}
