import { isTerminal, type Run } from '../../model/run.ts'
import type { RunImage, WholeThread } from '../../store/thread-image.ts'

/**
 * A thread as it was before one of its runs ended, or as it is where it has not, with that run due at once and nothing in its inbox. `at` is the
 * time of the last thing that happened there: no time limit is over that was not.
 */
export function cutForReplay(whole: WholeThread, run: Run): { readonly copy: WholeThread; readonly at: number } {
  const { thread } = whole
  const isOver = isTerminal(run.status) && run.endSeq !== null
  const headSeq = isOver ? (run.endSeq as number) - 1 : thread.headSeq
  const isThere = ({ seq }: { readonly seq: number }) => seq <= headSeq
  const log = whole.log.filter(isThere)
  const at = log.at(-1)?.at ?? run.createdAt
  const runs = whole.runs.filter((image) => image.run.inputSeq <= headSeq)
  return {
    at,
    copy: {
      ...whole,
      thread: {
        ...thread,
        headSeq,
        writtenSeq: Math.min(thread.writtenSeq, headSeq),
        patchSeq: Math.min(thread.patchSeq, headSeq),
      },
      runs: runs.map((image) => (image.run.id === run.id ? dueRun(image, at) : atRest(image))),
      log,
      checkpoints: whole.checkpoints.filter(isThere),
      snapshots: whole.snapshots.filter(isThere),
    },
  }
}

function dueRun(image: RunImage, at: number): RunImage {
  const fresh = { status: 'pending', reason: null, dueAt: at, endSeq: null, finishedAt: null, claimsWithoutProgress: 0 } as const
  return { ...image, waitKey: null, inbox: [], run: { ...image.run, ...fresh, ...noLease } }
}

/** Another run of the thread: it is not executed. */
function atRest(image: RunImage): RunImage {
  if (isTerminal(image.run.status)) return image
  return { ...image, waitKey: null, run: { ...image.run, status: 'paused', reason: 'asked', dueAt: null, ...noLease } }
}

const noLease = { leaseId: null, leaseUntil: null, leaseHolder: null } as const
