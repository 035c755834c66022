// A process under test: node --conditions=holdfast-source test/crash/bed/program.ts STORE
// Each line of its standard input is a `ProcessRun` as JSON, which it executes; its report is a line on the standard output. A worker
// closes at the next line, or at SIGTERM.

import { flushCompileCache } from 'node:module'
import { createInterface } from 'node:readline'
import { type ProcessRun, runProcess } from './run-process.ts'
import { type DurableStore, loadStore } from './store-address.ts'

// Reads lines from the first moment on: a worker may be told to close while it still starts its runs.
const input = createInterface({ input: process.stdin })
const lines = input[Symbol.asyncIterator]()
await loadStore(process.argv[2] as DurableStore)
for (;;) {
  const { value, done } = await lines.next()
  if (done === true) break
  const processRun = JSON.parse(value) as ProcessRun
  const report = await runProcess(processRun, processRun.isWorker === true ? untilToldToClose() : undefined)
  process.stdout.write(`${JSON.stringify(report)}\n`)
  // Most of these processes are killed, which would lose the compile cache for the next.
  flushCompileCache()
}

function untilToldToClose(): Promise<undefined> {
  process.once('SIGTERM', () => input.close())
  return lines.next().then(() => undefined)
}
