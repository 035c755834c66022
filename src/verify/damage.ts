import { formatCheckpoint } from '../model/ids.ts'
import type { ThreadKey } from '../store/store.ts'

/** Something in a store that is not as it was written, or that does not agree with the rest. */
export interface Damage {
  readonly owner: string
  readonly threadId: string
  readonly runId?: string
  /** The position that it is about, or the first of several. */
  readonly checkpoint?: string
  readonly what:
    | 'record'
    | 'snapshot'
    | 'checkpoint'
    | 'thread'
    | 'run'
    | 'lease'
    | 'operation'
    | 'message'
    | 'stream'
    | 'memory'
    | 'artifact'
  readonly message: string
  /** What is still safe to use, and what to do. */
  readonly help: string
}

const helps: Readonly<Record<Damage['what'], string>> = {
  record:
    'States before it can be read: fork the thread at an earlier checkpoint (thread.fork) and continue there, or restore the store from a backup. What needs the record fails with corrupt_record. Other threads are not affected.',
  snapshot:
    'The log can be read, and so can states before the snapshot. Do not rely on later ones: they are built from it. Fork the thread at an earlier checkpoint (thread.fork), or restore the store from a backup.',
  checkpoint: 'The log and the state can be read. Do not fork or rewind to this checkpoint; use another one.',
  thread:
    'Other threads are not affected. Do not start runs in this one: restore the store from a backup, or delete the thread (thread.delete).',
  run: 'Other threads are not affected, and the state of this one is checked separately. Do not rely on what this run reports: restore the store from a backup, or start the work again in another thread.',
  lease:
    'The log can be read. The run is taken over when its lease has expired. If it is not, restore the store from a backup, or fork the thread at its last checkpoint (thread.fork) and delete the original.',
  operation:
    'The log and the state can be read. Whether the effect happened or the question was answered has to be found out elsewhere, before its run continues: pause the run, and look where the effect leaves its traces.',
  message:
    'The log and the state can be read. The run cannot read its inbox and does not continue: restore the store from a backup, or fork the thread (thread.fork) and send the signal to the fork.',
  stream: 'Everything but this stream can be read. The run does not need it: its result and its state are not affected.',
  artifact:
    'Everything else can be read, and the artifact is refused with corrupt_record. Restore the folder or the store from a backup, or save the same content again: that repairs it.',
  memory: 'Everything else can be read. Write the value again or delete it, or restore the store from a backup.',
}

export function damageTo(
  { owner, threadId }: ThreadKey,
  what: Damage['what'],
  message: string,
  at: { readonly runId?: string | null; readonly seq?: number } = {},
): Damage {
  return {
    ...{ owner, threadId, what, message, help: helps[what] },
    ...(typeof at.runId === 'string' && { runId: at.runId }),
    ...(at.seq !== undefined && { checkpoint: formatCheckpoint(threadId, at.seq) }),
  }
}
