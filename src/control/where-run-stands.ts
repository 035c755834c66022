import { isTerminal, type Run } from '../model/run.ts'
import { standingOf } from '../model/standing.ts'
import type { Core } from './core.ts'

/** The status of a run in words, and what would continue it. Reads what the run waits for, so it is for errors only. */
export async function whereRunStands(core: Core, run: Run): Promise<{ readonly is: string; readonly help: string }> {
  if (run.status === 'running' && (await waitsForPerson(core, run))) return standingOf({ status: 'waiting', reason: 'person' })
  const { is, help } = standingOf(run)
  if (run.status === 'pending' || run.status === 'waiting') {
    const why = await whyNotClaimed(core, run)
    if (why !== null) return { is, help: why }
  }
  if (run.status === 'waiting' && run.reason === 'child') return { is, help: (await helpForChild(core, run)) ?? help }
  return { is, help }
}

/** Why no worker claims a run that is due; null if nothing prevents it, or it is not due. */
async function whyNotClaimed({ store, registry, hasWorker, now }: Core, run: Run): Promise<string | null> {
  const { owner, threadId, workflow, version, queue, dueAt, status } = run
  if (dueAt === null) return null
  if (dueAt > (await now())) return status === 'pending' ? `It is due at ${new Date(dueAt).toISOString()}.` : null
  if (hasWorker && registry.get(workflow, version) === undefined) {
    const versions = registry.all().flatMap(({ name, version: own }) => (name === workflow ? [own] : []))
    const has = versions.length === 0 ? '' : ` (this process has ${versions.join(', ')})`
    return `No worker here has workflow "${workflow}" version ${version}${has}: add it to the workflows of open().`
  }
  const [settings] = await store.listQueues({ name: queue })
  if (settings?.isPaused === true) return `Queue "${queue}" is paused: hf.queues.resume(${JSON.stringify(queue)}) continues it.`
  const unfinished = ['pending', 'running', 'waiting', 'paused'] as const
  const { items } = await store.listRuns({ owner, threadId, statuses: unfinished, limit: 1_000 })
  const first = items.at(-1)
  if (first !== undefined && first.id !== run.id)
    return `Run "${first.id}" of the same thread executes before it, and is ${standingOf(first).is}.`
  return hasWorker ? null : 'This process has no worker: another process with this workflow has to execute it.'
}

async function helpForChild(core: Core, run: Run): Promise<string | null> {
  const { store, codec } = core
  const { owner, threadId, id: runId, inputSeq } = run
  const types = ['child_started', 'child_completed'] as const
  const records = await store.readLog({ owner, threadId, runId, afterSeq: inputSeq - 1, types })
  const children = new Map<string, string>()
  for (const { type, step, count, payload } of records) {
    const child = payload === null ? undefined : (codec.decode(payload) as { runId?: string; isDetached?: boolean })
    if (type === 'child_completed') children.delete(`${step}#${count}`)
    else if (child?.runId !== undefined && child.isDetached !== true) children.set(`${step}#${count}`, child.runId)
  }
  const open = await Promise.all(
    [...children.values()].slice(0, maxChildren).map((child) => store.readRun({ owner, runId: child })),
  )
  const unfinished = open.filter((child) => child !== null && !isTerminal(child.status)) as Run[]
  // A paused one first, because it needs a person.
  const child = unfinished.find(({ status }) => status === 'paused') ?? unfinished[0]
  if (child === undefined) return null
  const { is, help } = await whereRunStands(core, child)
  const more = child.status === 'paused' ? ': resume or cancel that run.' : child.status === 'running' ? '.' : `. ${help}`
  return `It waits for child "${child.id}", which is ${is}${more}`
}

/** How many of its children are read. */
const maxChildren = 20

/** A run whose function waits is held for a while before it is persisted as waiting; what it waits for is recorded before that. */
async function waitsForPerson(core: Core, run: Run): Promise<boolean> {
  const { owner, threadId, id: runId, inputSeq } = run
  const types = [
    'effect_unsure',
    'effect_resolved',
    'effect_completed',
    'effect_failed',
    'question_asked',
    'question_answered',
  ] as const
  const records = await core.store.readLog({ owner, threadId, runId, afterSeq: inputSeq - 1, types, bare: true })
  const open = new Set<string>()
  for (const { type, step, count } of records) {
    if (type === 'effect_unsure' || type === 'question_asked') open.add(`${step}#${count}`)
    else open.delete(`${step}#${count}`)
  }
  return open.size > 0
}
