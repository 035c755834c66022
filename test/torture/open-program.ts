// A process that opens the store at each URL that comes in on its standard input, a line each, starts a run there and closes.
// It answers each with a line: `ok`, or what went wrong.

import { createInterface } from 'node:readline'
import { open } from 'holdfast'

console.log('ready')
for await (const url of createInterface({ input: process.stdin })) {
  try {
    const hf = await open(url, { worker: false })
    await hf.start('anything', undefined, { id: `run-of-${process.pid}` })
    await hf.close()
    console.log('ok')
  } catch (error) {
    console.log(String((error as Error).stack).replaceAll('\n', ' '))
  }
}
