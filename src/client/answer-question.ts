import type { QuestionData } from '../engine/question-runner.ts'
import { HoldfastError } from '../model/errors.ts'
import { isOpen, type Operation } from '../model/operation.ts'
import { isTerminal } from '../model/run.ts'
import { validate } from '../model/schema.ts'
import type { RunKey } from '../store/store.ts'
import { readRun } from './control-run.ts'
import type { Core } from './core.ts'

export interface AnswerOptions {
  /** Who answers: kept with the answer. */
  readonly by?: string
  /** What the person saw, as `hf.inbox()` named it. An answer to something else is refused. */
  readonly shown?: string
}

/** Answers a question that a run has asked. The first answer counts; a second one is `already_answered`. */
export async function answerQuestion(
  core: Core,
  key: RunKey,
  name: string,
  value: unknown,
  options: AnswerOptions = {},
): Promise<void> {
  const run = await readRun(core, key)
  const asked = await findQuestion(core, key, run.threadId, name)
  if (asked === null) {
    throw new HoldfastError(
      'invalid_input',
      `Run "${run.id}" (${run.status}) has asked no question "${name}". hf.inbox() lists the questions that are open.`,
      { details: { runId: run.id, question: name } },
    )
  }
  if (options.shown !== undefined && options.shown !== asked.shown) {
    throw new HoldfastError(
      'conflict',
      `Question "${name}" of run "${run.id}" shows something else by now than what was answered. Look at it again; nothing was recorded.`,
      { details: { runId: run.id, question: name } },
    )
  }
  const operation = await settled(core, key.owner, asked.key)
  if (operation === null || !isOpen(operation.status) || isTerminal(run.status)) throw alreadyAnswered(run.id, name, operation)
  const schema = core.questions.schema(key.owner, asked.key)
  const checked = schema === undefined ? value : await validate(schema, value, `The answer to "${name}" of run "${run.id}"`)
  const { by } = options
  const answer = await core.committer.commit({
    ...{ owner: key.owner, threadId: run.threadId, runId: run.id, guard: { kind: 'none' }, events: [], isCheckpoint: false },
    operation: {
      ...{ kind: 'resolve', key: asked.key, hasHappened: true, by: by ?? null },
      result: core.codec.encode({ value: checked, at: await core.now(), ...(by !== undefined && { by }) }),
    },
    delivers: [{ ...key, kind: 'answer', name: asked.key, payload: null }],
  })
  if (!answer.ok) throw alreadyAnswered(run.id, name, answer.operation ?? null)
  core.wakeWorker()
}

/** The last question of that name that the run has asked: by its name, or by its whole path. */
async function findQuestion(core: Core, key: RunKey, threadId: string, name: string): Promise<QuestionData | null> {
  const records = await core.store.readLog({ ...key, threadId, types: ['question_asked'] })
  const asked = records.findLast(({ step }) => step === name || step?.slice(step.lastIndexOf('/') + 1) === name)
  return asked?.payload == null ? null : (core.codec.decode(asked.payload) as QuestionData)
}

/** A question is asked in two writes; between them it can't be answered yet. */
async function settled(core: Core, owner: string, key: string): Promise<Operation | null> {
  for (let tries = 0; ; tries++) {
    const operation = await core.store.readOperation({ owner, key })
    if (operation?.status !== 'intended') return operation
    if (tries === 100) {
      throw new HoldfastError('conflict', 'The question is being asked right now, and its worker is slow; try again.', {
        retryable: true,
      })
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

function alreadyAnswered(runId: string, name: string, operation: Operation | null): HoldfastError {
  const by = operation?.resolvedBy == null ? '' : ` by ${operation.resolvedBy}`
  const how = operation?.status === 'completed' ? `was answered${by}` : 'is closed'
  return new HoldfastError(
    'already_answered',
    `Question "${name}" of run "${runId}" ${how} already; this answer was not taken.`,
    {
      details: { runId, question: name },
    },
  )
}
