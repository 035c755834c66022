// A process that executes the runs of several cases: node --conditions=holdfast-source test/model/worker-process.ts SPEC
// It is killed, by itself at a write, or by whoever started it.

import { readFileSync } from 'node:fs'
import type { Case } from './case.ts'
import { findFeatures } from './features.ts'
import { openGround, quietMs } from './grounds.ts'
import { Interpreter } from './interpret.ts'
import { Journal } from './journal.ts'
import { withChildren } from './program.ts'
import { makeReader } from './run-case.ts'
import { leaseMs, silent } from './simulated-process.ts'
import { holdfast, wrapStore } from './target.ts'

/** What such a process is told. */
export interface WorkerSpec {
  readonly store: Case['store']
  readonly url: string
  /** Holds the offset of the store's clock, which others move. */
  readonly clockFile: string
  /** It kills itself at this write. */
  readonly kill: { readonly write: number; readonly when: 'before' | 'after' } | null
  /** Whom its runs tell: processes of other cases share the store, and must not hear it. */
  readonly ear: string
  readonly tables: readonly {
    readonly given: Case
    readonly owner: string
    readonly suffix: string
    readonly journalFile: string
  }[]
}

const spec = JSON.parse(readFileSync(process.argv[2] as string, 'utf8')) as WorkerSpec
const features = await findFeatures()
const ground = await openGround(spec.store, readClock(spec.clockFile), spec.url)
const journals = new Map(spec.tables.map(({ owner, journalFile }) => [owner, new Journal(journalFile)]))
const workflows = spec.tables.flatMap(({ given, owner, suffix }) => {
  const interpreter = new Interpreter(journals.get(owner) as Journal, { nth: process.pid, isDead: false }, features, suffix)
  return [makeReader(suffix), ...[...withChildren(given.program)].map((program) => interpreter.workflow(program))]
})
let writes = 0
const strike = (act: string, when: 'before' | 'after') => {
  if (act !== 'commit' && act !== 'transact') return
  if (when === 'before') writes++
  if (spec.kill?.when === when && spec.kill.write === writes) process.kill(process.pid, 'SIGKILL')
}
const store = wrapStore(await ground.openStore(), {
  before: (act) => strike(act, 'before'),
  after: (act) => strike(act, 'after'),
})
const hasEars = spec.tables.some(({ given }) => given.notifies)
const told = ({ id, kind, runId, owner }: { id: string; kind: string; runId: string; owner: string }) =>
  journals.get(owner)?.write({ of: 'told', id, kind, run: runId })
await holdfast.open(store, {
  workflows,
  logger: silent,
  ...(hasEars && { notify: { name: spec.ear, deliver: told } }),
  worker: { pollMs: 20, leaseMs, closeGraceMs: 0, quietMs } as never,
})
process.send?.('ready')

function readClock(file: string): () => number {
  let offsetMs = 0
  let readAt = 0
  return () => {
    if (performance.now() - readAt < 5) return offsetMs
    readAt = performance.now()
    offsetMs = Number(readFileSync(file, 'utf8')) || offsetMs
    return offsetMs
  }
}
