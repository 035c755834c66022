// A process under test: node --conditions=holdfast-source test/crash/program.ts LIFE, where LIFE is JSON.
// It lives that life. What it says last, on its standard output, is its report.

import { type Life, live } from './live.ts'

const life = JSON.parse(process.argv[2] as string) as Life
// Listens from the first moment on: it may be told while it still starts its runs.
const told = life.isWorker === true ? untilToldToClose() : undefined
const report = await live(life, told)
process.stdout.write(JSON.stringify(report))

/** By a line on the standard input, or by SIGTERM. */
function untilToldToClose(): Promise<undefined> {
  return new Promise((resolve) => {
    const close = () => {
      process.stdin.destroy()
      resolve(undefined)
    }
    process.once('SIGTERM', close)
    process.stdin.once('data', close)
  })
}
