export const calls = [
  'pause()',
  'resume()',
  'cancel()',
  'cancel({ undo: false })',
  'retry()',
  'rollback(checkpoint)',
  'hf.signal()',
  'thread.update()',
] as const
export type ControlCall = (typeof calls)[number]

/**
 * What each control call does to a run, by the status of the run. The run has recorded one step with an undo after the checkpoint.
 *
 *   –                    the call resolves and the run stays as it is
 *   paused/asked         the status that the run gets
 *   …, undone            and the step is undone
 *   … again              the run is taken up, and comes to the same end
 *   conflict             the code of the error with which the call is refused; the run stays as it is
 *   conflict, paused/undo  the call is refused with that, and the run has another status
 *   conflict, again      the run is taken up, comes to the same end, and the call is refused with that
 */
export const outcomes = {
  pending: ['paused/asked', '–', 'cancelled', 'cancelled', '–', 'invalid_id', '–', '–'],
  running: ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', 'conflict'],
  'waiting/timer': ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', '–'],
  'waiting/signal': ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', '–'],
  'waiting/person, a question': ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', '–'],
  'waiting/person, an effect': ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', '–'],
  'waiting/child': ['paused/asked', '–', 'cancelled, undone', 'cancelled', '–', 'paused/asked, undone', '–', '–'],
  'paused/asked': ['–', 'waiting/signal', 'cancelled, undone', 'cancelled', 'conflict', 'paused/asked, undone', '–', '–'],
  'paused/retries': ['–', 'paused/retries again', 'cancelled, undone', 'cancelled', 'conflict', 'paused/asked, undone', '–', '–'],
  'paused/budget': ['–', 'paused/budget again', 'cancelled, undone', 'cancelled', 'conflict', 'paused/asked, undone', '–', '–'],
  'paused/mismatch': [
    '–',
    'paused/mismatch again',
    'cancelled, undone',
    'cancelled',
    'conflict',
    'paused/asked, undone',
    '–',
    '–',
  ],
  'paused/poisoned': ['–', 'waiting/signal', 'conflict, paused/undo', 'cancelled', 'conflict', 'conflict, paused/undo', '–', '–'],
  'paused/undo': ['–', 'paused/undo again', 'conflict, again', 'cancelled', 'conflict', 'conflict, again', '–', '–'],
  completed: ['conflict', 'conflict', 'conflict', 'conflict', 'conflict', 'paused/asked, undone', 'conflict', '–'],
  failed: ['conflict', 'conflict', 'conflict', 'conflict', 'failed again', 'paused/asked, undone', 'conflict', '–'],
  cancelled: ['conflict', 'conflict', '–', '–', 'conflict', 'conflict', 'conflict', '–'],
} as const satisfies Readonly<Record<string, readonly string[]>>
export type ControlledStatus = keyof typeof outcomes

export const statuses = Object.keys(outcomes) as ControlledStatus[]

/** The table as the guide shows it. */
export function outcomesAsMarkdown(): string {
  const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const code = (text: string) => text.replace(/^[a-z_]+(?=$|,| again)|[a-z]+\/[a-z]+/g, '`$&`')
  return [
    row(['', ...calls.map((call) => `\`${call}\``)]),
    row(['', ...calls].map(() => '---')),
    ...statuses.map((status) => row([code(status), ...outcomes[status].map(code)])),
  ].join('\n')
}
