/** What Holdfast's own workflows are called: users' workflows can't be, and lists leave their runs out. */
export const internalPrefix = 'holdfast.'

/** Whether a workflow is one of Holdfast's own, which users neither wrote nor started. */
export function isInternal(workflowName: string): boolean {
  return workflowName.startsWith(internalPrefix)
}

/** Where their runs are queued: every worker takes from it, also one for some queues only. */
export const internalQueue = 'holdfast'

/** Where runs that deliver messages are queued: apart, because a receiver may take its time, and nothing else should wait for it. */
export const notifyQueue = 'holdfast.notify'
