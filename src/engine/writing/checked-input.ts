import type { AnyWorkflow } from '../../define/workflow.ts'
import type { Codec } from '../../model/codec.ts'
import { validate } from '../../model/schema.ts'
import type { RunOrigin } from './run-origin.ts'

/** A run's input as its function gets it. */
export interface CheckedInput {
  readonly input: unknown
  readonly origin: RunOrigin
  /** It was checked here: it is recorded with the start of the tape, so that it is checked and transformed once. */
  readonly isNew: boolean
  /** Why it does not fit. */
  readonly error?: Error
}

/** Checks an input that was not checked yet: the process that started the run did not have its workflow. */
export async function checkInput(
  codec: Codec,
  workflow: AnyWorkflow,
  { input, origin }: { readonly input: unknown; readonly origin: RunOrigin },
): Promise<CheckedInput> {
  const { unchecked, ...rest } = origin
  const schema = workflow.options.input
  if (unchecked !== true || schema === undefined) return { input, origin, isNew: false }
  try {
    const checked = await validate(schema, input, `The input of workflow "${workflow.name}"`)
    // As it will be recorded: a later claim gets the same.
    const { input: recorded } = codec.decode(codec.encode(checked === undefined ? {} : { input: checked })) as { input?: unknown }
    return { input: recorded, origin: rest, isNew: true }
  } catch (error) {
    return { input, origin, isNew: false, error: error as Error }
  }
}
