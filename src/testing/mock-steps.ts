import { type AnyWorkflow, HoldfastError } from '../index.ts'
import { refuseNoRecord } from './given-options.ts'
import { type InterceptedCall, interceptCalls } from './intercept-calls.ts'

/**
 * What is done instead of a step's body, by the step's path (`gather/fetch`), by one of its calls (`gather/fetch#2`), or by its name alone. A value is
 * its result, an Error is thrown, a function is called with what the body would get.
 */
export type Mocks = Readonly<Record<string, unknown>>

/**
 * The same workflow with the bodies of some steps, effects, transactions, sections and steps of a plan replaced, also in the workflows that it
 * calls. Everything else is as it was: they are recorded, retried, checked against their schema and undone. The item of a map is `name[0]`, all of
 * them are `name`. An effect with a value or an error counts as idempotent; with a function it keeps its own `check`.
 */
export function mockSteps<W extends AnyWorkflow>(workflow: W, mocks: Mocks): W {
  if (typeof workflow?.fn !== 'function')
    throw new HoldfastError(
      'invalid_input',
      'mockSteps takes what workflow() or plan() returned, and what is done instead, by name.',
    )
  refuseNoRecord('What mockSteps replaces', mocks ?? null)
  const nameOf = (path: string, count: number) => namesOf(path, count).find((name) => Object.hasOwn(mocks, name))
  const isReplaced = (path: string, count: number) => {
    const name = nameOf(path, count)
    return name !== undefined && typeof mocks[name] !== 'function'
  }
  const wrap = interceptCalls(({ kind, path, count }, proceed, args) => {
    const name = bodies.has(kind) ? nameOf(path, count) : undefined
    if (name === undefined) return proceed()
    const mock = mocks[name]
    if (mock instanceof Error) throw mock
    return typeof mock === 'function' ? mock(...args) : mock
  }, isReplaced)
  // A plan is a workflow with more to it, of which runs need nothing.
  return { ...workflow, ...wrap(workflow) }
}

const bodies: ReadonlySet<InterceptedCall['kind']> = new Set(['step', 'effect', 'section', 'transaction'])

/** From the most exact on. */
function namesOf(path: string, count: number): string[] {
  const item = /\[\d+\]$/
  const name = path.slice(path.lastIndexOf('/') + 1)
  const paths = item.test(path) ? [path, path.replace(item, '')] : [path]
  const names = item.test(name) ? [name, name.replace(item, '')] : [name]
  return [`${path}#${count}`, ...paths, `${name}#${count}`, ...names]
}
