import type { Hint } from '../../store/store.ts'
import { Candidates } from './candidates.ts'
import { prepareReadChunks } from './chunks.ts'
import { Claims } from './claim.ts'
import { prepareCollectThreads } from './collect-threads.ts'
import { Commits } from './commit.ts'
import type { Connection } from './connection.ts'
import { prepareReadInbox } from './inbox.ts'
import { prepareDeadHolders } from './lease-holders.ts'
import { prepareListQueues, prepareSetQueue } from './queues.ts'
import { prepareReads } from './reads.ts'
import { prepareReadRecords } from './records.ts'
import { prepareHeedSetBack, prepareIsHeldUp } from './set-back.ts'
import { prepareImages, prepareRestore } from './thread-image.ts'
import { prepareDeleteThread, prepareTag } from './threads.ts'
import { prepareTransact } from './transact.ts'

/** Runs acts on a connection, each in a transaction. Their statements are prepared with the first. */
export function openTransactions(
  connection: Connection,
  { now, tell }: { readonly now: () => number; readonly tell: (hints: readonly Hint[]) => void },
) {
  // Statements can be prepared only once the tables are there; preparing reads the file, so it may have to wait for a lock.
  let prepared: Acts | null = null
  let preparing: Promise<Acts> | null = null
  async function ready(): Promise<Acts> {
    connection.refuseClosed()
    if (prepared !== null) return prepared
    // Calls that come meanwhile wait for the same: preparing takes milliseconds, and many calls at the start are common.
    preparing ??= connection
      .read(() => prepareActs(connection, now))
      .finally(() => {
        preparing = null
      })
    prepared = await preparing
    return prepared
  }

  async function read<Answer>(act: (acts: Acts) => Answer): Promise<Answer> {
    const acts = prepared ?? (await ready())
    return connection.read(() => act(acts))
  }

  /** A read of one statement: it sees one state of the tables without a transaction around it. */
  async function readOne<Answer>(act: (acts: Acts) => Answer): Promise<Answer> {
    const acts = prepared ?? (await ready())
    return connection.read(() => act(acts), { isOneStatement: true })
  }

  /** One write transaction, then the news of it. */
  async function write<Answer>(act: (acts: Acts, hints: Hint[]) => Answer, options?: { mustSync: boolean }): Promise<Answer> {
    const acts = prepared ?? (await ready())
    const hints: Hint[] = []
    const answer = await connection.write(() => {
      acts.commits.startTransaction()
      const answer = act(acts, hints)
      acts.commits.endTransaction()
      return answer
    }, options)
    tell(hints)
    return answer
  }

  return { ready, read, readOne, write }
}

export type Transactions = ReturnType<typeof openTransactions>

export type Acts = ReturnType<typeof prepareActs>

function prepareActs(connection: Connection, now: () => number) {
  const { writer, reader } = connection
  const commits = new Commits(writer)
  const deleteThread = prepareDeleteThread(writer, commits.parts)
  return {
    commits,
    claims: new Claims(writer, commits),
    candidates: new Candidates(reader),
    findDead: prepareDeadHolders(reader),
    isHeldUp: prepareIsHeldUp(reader),
    heedSetBack: prepareHeedSetBack(writer),
    setQueue: prepareSetQueue(writer),
    listQueues: prepareListQueues(reader),
    readInbox: prepareReadInbox(reader),
    tag: prepareTag(writer),
    deleteThread,
    collectThreads: prepareCollectThreads(writer, deleteThread),
    reads: prepareReads(reader),
    chunks: prepareReadChunks(reader),
    records: prepareReadRecords(reader),
    images: prepareImages(reader),
    restoreThread: prepareRestore(writer, commits),
    transact: prepareTransact(connection, commits, now),
  }
}
