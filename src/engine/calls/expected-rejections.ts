/**
 * A run that is cancelled or fenced rejects all its calls at once. A promise that its function made of one, and does not await yet (`const b =
 * work('b'); await a; await b`), is rejected with no handler: by default Node ends the process for that, with every other run in it. So for
 * a while after the rejections, what is unhandled because of such an error, and nothing else, is let pass.
 *
 * It is the one thing here that concerns the whole process. It is there only for that while, and does to other rejections what Node would do.
 */
const whileMs = 1_000

/** Errors that say that a run has ended for this process. */
const ofEnds = new WeakSet<Error>()
let timer: NodeJS.Timeout | undefined

/** The error of a run that has ended here: thrown into its function, it is no news to anybody. */
export function endError<E extends Error>(error: E): E {
  ofEnds.add(error)
  return error
}

/** Calls of a run are about to be rejected with such an error. */
export function expectRejections(): void {
  if (timer === undefined) process.on('unhandledRejection', letPass)
  clearTimeout(timer)
  timer = setTimeout(() => {
    timer = undefined
    process.off('unhandledRejection', letPass)
  }, whileMs)
  timer.unref()
}

function letPass(reason: unknown): void {
  if (isOfEnd(reason)) return
  // Another listener decides, where there is one; otherwise it ends the process as it would without a listener.
  if (process.listenerCount('unhandledRejection') > 1 || isLenient()) return
  throw reason
}

/** Also what the function made of it: an error with that cause. */
function isOfEnd(reason: unknown): boolean {
  try {
    for (let at = reason, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) if (ofEnds.has(at)) return true
  } catch {
    // User code throws anything, also what throws when it is looked at.
  }
  return false
}

/** The process was started so that unhandled rejections do not end it. */
function isLenient(): boolean {
  const flags = [...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].join(' ')
  return /--unhandled-rejections=(?:warn|none)/.test(flags)
}
