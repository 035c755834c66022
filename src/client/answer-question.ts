import { readRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import { lastPartOf } from '../engine/replay/call-key.ts'
import { type Asking, shownOf } from '../model/asking.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { isOpen, type Operation } from '../model/operation.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { validate } from '../model/schema.ts'
import type { RunKey } from '../store/store.ts'

export interface AnswerOptions {
  /** The id of the question, as listed by `hf.inbox()`. Needed only if several open questions have this name. */
  readonly id?: string
  /** Who answers. Recorded with the answer. */
  readonly by?: string
  /** What the person saw: `shown` of the item in `hf.inbox()`. If the question shows something else by now, the answer is refused. */
  readonly shown?: string
}

const answerOptionNames: OptionNames<AnswerOptions> = { id: true, by: true, shown: true }

/**
 * Answers a question that a run has asked, by its name or its path (with its scopes). The first answer counts; a second one is
 * `already_answered`.
 */
export async function answerQuestion(
  core: Core,
  key: RunKey,
  name: string,
  value: unknown,
  options: AnswerOptions = {},
): Promise<void> {
  refuseUnknownOptions('hf.answer', options, answerOptionNames)
  const run = await readRun(core, key)
  const { owner } = key
  const id =
    options.id === undefined
      ? await findOpen(core, run, name, options.shown)
      : await findById(core, run, name, { ...options, id: options.id })
  if (isTerminal(run.status)) throw alreadyAnswered(run, name, null)
  const schema = core.questions.schema(owner, id)
  // Stored as it was given: the run that takes it applies the schema, once.
  if (schema !== undefined) await validate(schema, value, `The answer to "${name}" of run "${run.id}"`)
  const { by } = options
  await core.waiters.watchesBegun(key)
  const answer = await core.committer.commit({
    ...{ owner, threadId: run.threadId, runId: run.id, guard: { kind: 'none' }, events: [], isCheckpoint: false },
    operation: {
      ...{ kind: 'resolve', key: id, hasHappened: true, by: by ?? null },
      result: core.codec.encode({ value, at: await core.now(), ...(by !== undefined && { by }) }),
    },
    delivers: [{ ...key, kind: 'answer', name: id, payload: null }],
  })
  if (!answer.ok) throw alreadyAnswered(run, name, answer.operation ?? null)
  core.wakeWorker()
}

async function findById(core: Core, run: Run, name: string, options: AnswerOptions & { readonly id: string }): Promise<string> {
  const id = checkId('id of a question', options.id)
  const operation = await core.store.readOperation({ owner: run.owner, key: id })
  if (operation?.kind !== 'question' || operation.runId !== run.id) throw unknownQuestion(run, name, id)
  const readAsked = async () => (await readAskings(core, run)).find(({ asking }) => asking.key === id)
  // Operations of version 0.1 have the name without scopes; only the log has the path.
  if (!isCalled(operation.name, name) && !(isCalled(name, operation.name) && (await readAsked())?.path === name))
    throw unknownQuestion(run, name, id)
  if (!isOpen(operation.status)) throw alreadyAnswered(run, name, operation)
  if (options.shown !== undefined) {
    const asked = await readAsked()
    if (asked === undefined || !shows(asked.asking, options.shown)) throw otherShown(run, name)
  }
  return id
}

/** The only open question of that name. */
async function findOpen(core: Core, run: Run, name: string, shown: string | undefined): Promise<string> {
  const askings = (await readAskings(core, run)).filter(({ path }) => isCalled(path, name))
  if (askings.length === 0) throw unknownQuestion(run, name)
  // `shown` identifies the asking even if it is closed: an answer that is sent twice must not answer the same question asked again.
  const named = shown === undefined ? [] : askings.filter(({ asking }) => shownOf(asking) === shown)
  const meant = named.length > 0 || shown === undefined ? named : askings.filter(({ asking }) => asking.shown === shown)
  if (shown !== undefined && meant.length === 0) throw otherShown(run, name)
  let closed: Operation | null = null
  const open: string[] = []
  for (const { asking, isOver } of shown === undefined ? askings : meant) {
    const operation = isOver ? null : await core.store.readOperation({ owner: run.owner, key: asking.key })
    if (operation !== null && isOpen(operation.status)) open.push(asking.key)
    else closed = operation ?? closed
  }
  const [id, ...others] = open
  if (id === undefined) throw alreadyAnswered(run, name, closed)
  if (others.length > 0) throw ambiguous(run, name, open)
  return id
}

interface Asked {
  readonly asking: Asking
  /** The question's name with its scopes. */
  readonly path: string
  /** It was answered, or asked again. */
  isOver: boolean
}

/** All questions that a run has asked, in order. */
async function readAskings(core: Core, { owner, threadId, id: runId }: Run): Promise<Asked[]> {
  const records = await core.store.readLog({ owner, threadId, runId, types: ['question_asked', 'question_answered'] })
  const last = new Map<string, Asked>()
  const askings: Asked[] = []
  for (const { type, step, count, payload } of records) {
    const call = `${step}#${count}`
    const before = last.get(call)
    if (before !== undefined) before.isOver = true
    if (type !== 'question_asked' || payload === null) continue
    const asked = { asking: core.codec.decode(payload) as Asking, path: step ?? '', isOver: false }
    last.set(call, asked)
    askings.push(asked)
  }
  return askings
}

function isCalled(path: string, name: string): boolean {
  return path === name || lastPartOf(path) === name
}

/** By `shown` of this asking, or by the fingerprint of what it shows, as in `question_asked`. */
function shows(asking: Asking, shown: string): boolean {
  return shownOf(asking) === shown || asking.shown === shown
}

function unknownQuestion(run: Run, name: string, id?: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `Run "${run.id}" (${run.status}) has asked no question "${name}"${id === undefined ? '' : ` under the id "${id}"`}. ` +
      'hf.inbox() lists the questions that are open.',
    { details: { runId: run.id, question: name, ...(id !== undefined && { id }) } },
  )
}

function otherShown(run: Run, name: string): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Question "${name}" of run "${run.id}" now shows something else than what was answered. Read it again; nothing was recorded.`,
    { details: { runId: run.id, question: name } },
  )
}

function ambiguous(run: Run, name: string, ids: readonly string[]): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Run "${run.id}" has ${ids.length} open questions "${name}"; nothing was recorded. Say which one you answer: ` +
      `hf.answer(…, { id }), with the id that hf.inbox() lists: ${ids.slice(0, 10).join(', ')}${ids.length > 10 ? ', …' : ''}.`,
    { details: { runId: run.id, question: name, ids } },
  )
}

function alreadyAnswered(run: Run, name: string, operation: Operation | null): HoldfastError {
  const by = operation?.resolvedBy == null ? '' : ` by ${operation.resolvedBy}`
  const how = operation?.status === 'completed' ? `was answered${by}` : 'is closed'
  return new HoldfastError(
    'already_answered',
    `Question "${name}" of run "${run.id}" ${how} already; this answer was not recorded.`,
    {
      details: { runId: run.id, question: name },
    },
  )
}
