import type { StandardSchemaV1 } from '@standard-schema/spec'
import { formatPath } from './codec.ts'
import { HoldfastError } from './errors.ts'

const shownIssues = 5

/**
 * The value as the schema returns it, or `invalid_input` with the first issues and their paths. Any Standard Schema
 * will do (zod, valibot, arktype). A promise only if the schema is asynchronous. `what` names the value in the message.
 */
export function validate(schema: StandardSchemaV1, value: unknown, what: string): Promise<unknown> | unknown {
  const standard = schema?.['~standard']
  if (typeof standard?.validate !== 'function') {
    throw new HoldfastError(
      'invalid_input',
      `The schema of ${what} is not a Standard Schema. Pass one of zod, valibot or arktype.`,
    )
  }
  let result: ReturnType<typeof standard.validate>
  try {
    result = standard.validate(value)
  } catch (error) {
    throw schemaThrew(what, error)
  }
  if (!(result instanceof Promise)) return outputOf(result, what)
  return result.then(
    (settled) => outputOf(settled, what),
    (error) => {
      throw schemaThrew(what, error)
    },
  )
}

function outputOf(result: StandardSchemaV1.Result<unknown>, what: string): unknown {
  if (!result.issues) return result.value
  const issues = result.issues.slice(0, shownIssues).map((issue) => ({ path: pathOf(issue), message: issue.message }))
  const more = result.issues.length - issues.length
  const listed = issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ')
  throw new HoldfastError(
    'invalid_input',
    `${what} does not match its schema. ${listed}${more > 0 ? `; and ${more} more` : ''}`,
    {
      details: { issues, issueCount: result.issues.length },
    },
  )
}

function pathOf(issue: StandardSchemaV1.Issue): string {
  const keys = (issue.path ?? []).map((part) => (typeof part === 'object' && part !== null ? part.key : part))
  return formatPath(keys.map((key) => (typeof key === 'symbol' ? String(key) : key)))
}

function schemaThrew(what: string, cause: unknown): HoldfastError {
  const message = cause instanceof Error ? cause.message : String(cause)
  return new HoldfastError('invalid_input', `The schema of ${what} threw instead of answering: ${message}`, { cause })
}
