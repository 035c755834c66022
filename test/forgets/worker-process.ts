// A worker in a process of its own: node --conditions=holdfast-source test/forgets/worker-process.ts ORDER STORE [FOLDER]
// It works until its input ends.

import { once } from 'node:events'
import { loadTarget, type StoreAt } from './target.ts'
import { type WorkerOrder, workAt } from './worker.ts'

const [order, at, folder] = process.argv.slice(2)
const target = await loadTarget(folder)
const close = await workAt(target, JSON.parse(order as string) as WorkerOrder, JSON.parse(at as string) as StoreAt)
process.stdout.write('ready\n')
process.stdin.resume()
await once(process.stdin, 'end')
// Whoever started it may be dead, and the store gone.
setTimeout(() => process.exit(3), 60_000).unref()
await close()
