import type { Act, Fault } from './acts.ts'
import type { Case } from './case.ts'
import { type Node, type NodeKind, type Program, walk, withChildren } from './program.ts'

/** What a program can be made of, as far as it is counted. Those without `kind` are about a program as a whole. */
export interface Construct {
  readonly name: string
  readonly kind?: NodeKind
  readonly isIn?: (node: Node) => boolean
  readonly isOf?: (program: Program) => boolean
}

const ofKind = <Kind extends NodeKind>(
  kind: Kind,
  variants: Record<string, (node: Extract<Node, { kind: Kind }>) => boolean>,
): Construct[] =>
  Object.entries(variants).map(([name, isIn]) => ({
    ...{ name, kind },
    isIn: (node: Node) => node.kind === kind && isIn(node as Extract<Node, { kind: Kind }>),
  }))

export const constructs: readonly Construct[] = [
  ...ofKind('step', {
    step: () => true,
    'step, undo function': ({ undo }) => undo === 'function',
    'step, undo by name': ({ undo }) => undo === 'named',
    'step, retry': ({ fails, attempts }) => fails > 0 && fails < attempts,
    'step, fails for good': ({ fails, attempts, onFailure }) => fails >= attempts && onFailure === undefined,
    'step, fallback': ({ onFailure }) => onFailure === 'fallback',
    'step, skip': ({ onFailure }) => onFailure === 'skip',
    'step, pause': ({ onFailure }) => onFailure === 'pause',
    'step, time-out': ({ timeoutMs }) => timeoutMs !== undefined,
    'step, checkpoint: false': ({ checkpoint }) => checkpoint === false,
    'step.update': ({ updates }) => updates === true,
    'step.memory, a fact': ({ remembers }) => remembers === true,
  }),
  ...ofKind('effect', {
    'effect, idempotent': ({ declared }) => declared === 'idempotent',
    'effect, check': ({ declared }) => declared === 'check',
    'effect, neither': ({ declared }) => declared === 'neither',
    'effect, NotHappened': ({ sendings }) => sendings.includes('not_happened'),
    'effect, outcome hidden': ({ sendings }) => sendings.some((sending) => sending !== 'not_happened'),
    'effect, key given': ({ key }) => key !== undefined,
    'effect, default key': ({ key }) => key === undefined,
    'effect, undo': ({ undo }) => undo !== undefined,
  }),
  ...ofKind('transaction', { transaction: () => true }),
  ...ofKind('update', { update: () => true }),
  ...ofKind('read', { 'state read': ({ branches }) => !branches, 'state decides': ({ branches }) => branches }),
  ...ofKind('scope', { scope: () => true }),
  ...ofKind('section', {
    section: () => true,
    'section, attempts': ({ attempts }) => attempts > 1,
    'section, fallback': ({ onFailure }) => onFailure === 'fallback',
    'section, skip': ({ onFailure }) => onFailure === 'skip',
    'section, pause': ({ onFailure }) => onFailure === 'pause',
    'section, undo': ({ undo }) => undo !== undefined,
  }),
  ...ofKind('map', { map: () => true }),
  ...ofKind('begin', {
    begin: ({ isFailing }) => !isFailing,
    'begin, fail': ({ isFailing, inner }) => isFailing && inner.nodes.length === 0,
    'begin around calls, fail': ({ isFailing, inner }) => isFailing && inner.nodes.length > 0,
  }),
  ...ofKind('all', { all: () => true }),
  ...ofKind('race', { race: () => true }),
  ...ofKind('any', { any: () => true }),
  ...ofKind('settled', { allSettled: () => true }),
  ...ofKind('sleep', { 'sleep, short': ({ ms }) => ms < 5_000, 'sleep, long': ({ ms }) => ms > 5_000 }),
  ...ofKind('signal', {
    waitFor: ({ timeoutMs }) => timeoutMs === undefined,
    'waitFor, time-out': ({ timeoutMs }) => timeoutMs !== undefined,
  }),
  ...ofKind('signals', { 'waitFor, several names': () => true }),
  ...ofKind('ask', {
    ask: () => true,
    'ask, schema': ({ schema }) => schema === 'sync',
    'ask, async schema': ({ schema }) => schema === 'async',
    'ask, time-out': ({ timeoutMs }) => timeoutMs !== undefined,
  }),
  ...ofKind('call', { 'child, attached': ({ isDetached }) => !isDetached, 'child, detached': ({ isDetached }) => isDetached }),
  ...ofKind('value', { 'now, random, uuid': () => true }),
  ...ofKind('foreign', {
    'foreign timer': ({ of }) => of === 'timer',
    'foreign microtask': ({ of }) => of === 'microtask',
    'foreign immediate': ({ of }) => of === 'immediate',
    'foreign file': ({ of }) => of === 'file',
  }),
  ...ofKind('try', { 'try, catch': () => true }),
  ...ofKind('throw', { throw: () => true }),
  ...ofKind('loop', { loop: () => true }),
  { name: 'plan', isOf: ({ stages }) => stages !== undefined },
  { name: 'plan, parallel', isOf: ({ stages }) => stages?.some((stage) => stage.length > 1) === true },
  { name: 'continueAs', isOf: ({ tapes }) => tapes.length > 1 },
  { name: 'undoOnFailure', isOf: ({ undoOnFailure }) => undoOnFailure },
]

/** What can happen to a run, as each seed has one of them for sure. */
export const happenings: readonly string[] = [
  ...['signal', 'answer', 'answer twice', 'answer wrong', 'resolve', 'pause', 'resume', 'cancel', 'cancel without undo'],
  ...['retry', 'rollback', 'edit', 'delete', 'advance', 'crash before', 'crash after', 'lost_reply', 'outage', 'lost_lease'],
]

/** What can happen to its thread. */
export const copies = ['fork', 'replace', 'rewind'] as const

export const events: readonly string[] = [...happenings, ...copies]

export function constructsOf(given: Case): Set<string> {
  const found = new Set<string>()
  for (const program of withChildren(given.program)) {
    for (const { name, isOf } of constructs) if (isOf?.(program)) found.add(name)
    for (const { node } of walk(program)) for (const { name, isIn } of constructs) if (isIn?.(node)) found.add(name)
  }
  return found
}

export function nameOfAct(act: Act): string {
  if (act.kind === 'answer') return act.how === 'once' ? 'answer' : `answer ${act.how}`
  return act.kind === 'cancel' && !act.undo ? 'cancel without undo' : act.kind
}

export function nameOfFault(fault: Fault): string {
  return fault.kind === 'crash' ? `crash ${fault.when}` : fault.kind === 'kill' ? 'SIGKILL' : fault.kind
}
