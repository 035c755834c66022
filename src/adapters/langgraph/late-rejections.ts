/**
 * LangGraph keeps the promises of `put` and `putWrites` and looks at them when a run ends, which may be minutes after one was rejected. Until then
 * Node takes the rejection for one that nobody handles, and ends the process: one refused run would take a whole server with it. So Node is
 * told, for these errors alone and until LangGraph has taken them, that they will be handled. All others stay as fatal as they were.
 */
const expected = new WeakSet<object>()
const waiting = new Set<Promise<unknown>>()
let announced = 0

/** Says that a promise of LangGraph's is about to be rejected with this. */
export function announceRejection(error: unknown): void {
  if (typeof error !== 'object' || error === null) return
  expected.add(error)
  if (announced === 0 && waiting.size === 0) {
    process.on('unhandledRejection', onUnhandled)
    process.on('rejectionHandled', onHandled)
  }
  announced += 1
  // By then Node has seen what was rejected in this turn.
  setImmediate(() =>
    setImmediate(() => {
      announced -= 1
      stopIfDone()
    }),
  )
}

function onUnhandled(reason: unknown, promise: Promise<unknown>): void {
  if (typeof reason === 'object' && reason !== null && expected.has(reason)) waiting.add(promise)
  // Where nobody else listens, Node would have ended the process.
  else if (process.listenerCount('unhandledRejection') === 1) throw reason
}

function onHandled(promise: Promise<unknown>): void {
  waiting.delete(promise)
  stopIfDone()
}

function stopIfDone(): void {
  if (announced > 0 || waiting.size > 0) return
  process.off('unhandledRejection', onUnhandled)
  process.off('rejectionHandled', onHandled)
}
