// A process under test: node --conditions=holdfast-source test/crash/program.ts STORE
// It loads what that store needs, and lives the lives that come in on its standard input, a line of JSON each. What it says of
// each, on its standard output, is its report. A worker's life ends at the next line, or at SIGTERM.

import { flushCompileCache } from 'node:module'
import { createInterface } from 'node:readline'
import { type Life, live } from './live.ts'
import { type DurableStore, loadStore } from './store-address.ts'

// Gathers lines from the first moment on: a worker may be told to close while it still starts its runs.
const input = createInterface({ input: process.stdin })
const lines = input[Symbol.asyncIterator]()
await loadStore(process.argv[2] as DurableStore)
for (;;) {
  const { value, done } = await lines.next()
  if (done === true) break
  const life = JSON.parse(value) as Life
  const report = await live(life, life.isWorker === true ? untilToldToClose() : undefined)
  process.stdout.write(`${JSON.stringify(report)}\n`)
  // Most of these processes are killed, and would leave nothing of what was compiled to the next.
  flushCompileCache()
}

function untilToldToClose(): Promise<undefined> {
  process.once('SIGTERM', () => input.close())
  return lines.next().then(() => undefined)
}
