import { type Act, type Fault, whenAllHaveEnded } from './acts.ts'
import type { Case } from './case.ts'
import {
  type Effect,
  type Node,
  nameOf,
  type Program,
  type Section,
  type Seq,
  type Step,
  type Work,
  withChildren,
} from './program.ts'

/** A case as TypeScript: the program as a workflow, and what was done to it, for a test. */
export function printCase(given: Case): string {
  const programs = [...withChildren(given.program)].reverse()
  const lines = [
    `// seed ${given.seed}, on ${given.store}${given.hasSecondWorker ? ', two workers' : ''}${given.notifies ? ', with notify' : ''}`,
    'const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })',
    ...programs.flatMap((program) => printProgram(program)),
    `const run = await hf.start(${given.program.name}, ${given.program.stages === undefined ? '{ tape: 0 }' : '{}'}, { id: 'r' })`,
    ...given.acts.map(({ act, client, afterNotes, isWedged }, index) => {
      const when = isWedged ? 'while the reply to the next write is on its way' : 'then'
      return `${printAct(act, index + 1)} // by client ${client}, ${when}; ${afterNotes === whenAllHaveEnded ? 'when all runs have ended' : `after ${afterNotes} notes in the journal`}`
    }),
    ...given.faults.map((fault) => `// ${printFault(fault)}`),
    ...(given.retries > 0 ? [`// run.retry() up to ${given.retries} times when it has failed`] : []),
  ]
  return lines.join('\n')
}

function printProgram(program: Program): string[] {
  const undos = program.undoOnFailure ? ', undoOnFailure: true' : ''
  if (program.stages !== undefined) {
    const lines = [`const ${program.name} = plan({ name: '${program.name}', state: list${undos} })`]
    for (const stage of program.stages) {
      if (stage.length === 1) lines.push(...indent(printPlanStep(stage[0] as Section, '.step(', ')')))
      else lines.push('  .parallel([', ...stage.flatMap((section) => indent(indent(printPlanStep(section, '[', '],')))), '  ])')
    }
    return lines
  }
  const last = program.tapes.length - 1
  const tapes = program.tapes.flatMap((tape, index) => {
    const end = index < last ? [`return await ctx.continueAs({ tape: ${index + 1} })`] : []
    const body = [...printSeq(tape), ...end]
    return last === 0 ? body : [`if (input.tape === ${index}) {`, ...indent(body), '}']
  })
  return [
    `const ${program.name} = workflow({ name: '${program.name}', state: list${undos} }, async (ctx, input: { tape: number }) => {`,
    ...indent(tapes),
    '})',
  ]
}

function printPlanStep(section: Section, open: string, close: string): string[] {
  return [
    `${open}'${nameOf(section)}', async (_, ctx) => {`,
    ...indent(printSeq(section.body)),
    `}, ${printSectionOptions(section)}${close}`,
  ]
}

function printSeq({ nodes }: Seq): string[] {
  return nodes.flatMap(printNode)
}

function printNode(node: Node): string[] {
  const name = `'${nameOf(node)}'`
  switch (node.kind) {
    case 'seq':
      return printSeq(node)
    case 'step':
      return [`await ctx.step(${name}, async (step) => {${printBody(node)}}, ${printStepOptions(node)})`]
    case 'effect':
      return [`await ctx.once(${name}, ${printEffect(node)})`]
    case 'transaction':
      return [`await ctx.transaction(${name}, (tx) => tx.query("INSERT INTO mine VALUES ('${node.id}')"))`]
    case 'update':
      return [`ctx.update((draft) => void draft.list.push('u${node.id}'))`]
    case 'read':
      return node.branches
        ? [`await ctx.step(ctx.state.list.length % 2 === 0 ? 'r${node.id}even' : 'r${node.id}odd', () => {})`]
        : [`const seen${node.id} = [...ctx.state.list]`]
    case 'scope':
      return [`await ctx.scope(${name}, async () => {`, ...indent(printSeq(node.body)), '})']
    case 'section':
      return [`await ctx.section(${name}, async () => {`, ...indent(printSeq(node.body)), `}, ${printSectionOptions(node)})`]
    case 'map': {
      const undo = node.undo === undefined ? '' : `, undo: ${printUndo(node.undo)}`
      const options = `{ concurrency: ${node.concurrency}, retry: { attempts: ${node.attempts}, minMs: 1 }${undo} }`
      return [
        `await ctx.map(${name}, [${node.fails.join(', ')}], async (fails, index, { attempt }) => {${printWork(node.work)} if (attempt <= fails) throw new Error('x${node.id}') }, ${options})`,
      ]
    }
    case 'begin': {
      const variable = `b${node.id}`
      const failed = `new Error('x${node.id}')`
      return [
        `const ${variable} = await ctx.begin<number>(${name})`,
        ...printSeq(node.inner),
        ...(node.isFailing
          ? [`await ${variable}.fail(${failed})`, `throw ${failed}`]
          : [`await ${variable}.complete(${variable}.recorded ?? ${node.id})`]),
      ]
    }
    case 'all':
    case 'race':
    case 'any':
    case 'settled': {
      const call = { all: 'all', race: 'race', any: 'any', settled: 'allSettled' }[node.kind]
      const branches = node.branches.flatMap((seq) => ['(async () => {', ...indent(printSeq(seq)), '})(),'])
      if (!node.isStrict) return [`await Promise.${call}([`, ...indent(branches), '])']
      return [
        `const all${node.id} = await Promise.${call}([`,
        ...indent(branches),
        '])',
        `if (all${node.id}.some(({ status }) => status === 'rejected')) throw new Error('x${node.id}')`,
      ]
    }
    case 'sleep':
      return [`await ctx.sleep(${node.ms})`]
    case 'signal': {
      const options = node.timeoutMs === undefined ? '' : `, { timeoutMs: ${node.timeoutMs} }).catch(onTimeout`
      return [`await ctx.waitFor('${node.name}'${options})${node.isNever ? ' // never sent' : ''}`]
    }
    case 'signals':
      return [`await ctx.waitFor([${node.names.map((one) => `'${one}'`).join(', ')}])`]
    case 'ask': {
      const more = `${node.schema === undefined ? '' : `, schema: ${node.schema}Schema`}${node.timeoutMs === undefined ? '' : `, timeoutMs: ${node.timeoutMs}`}${node.hasDefault ? ', default: { ok: false }' : ''}`
      return [`await ctx.ask(${name}, { question: ${node.id}${more} })`]
    }
    case 'call':
      return [`await ctx.call(${node.child.name}, { tape: 0 }${node.isDetached ? ', { detached: true }' : ''})`]
    case 'value':
      return [`ctx.${node.of}()`]
    case 'foreign':
      return [
        {
          timer: `await delay(${node.ms})`,
          microtask: 'await Promise.resolve()',
          immediate: 'await setImmediate()',
          file: 'await readFile(import.meta.filename)',
        }[node.of],
      ]
    case 'try':
      return ['try {', ...indent(printSeq(node.body)), '} catch {', ...indent(printSeq(node.handler)), '}']
    case 'throw':
      return [`throw new Error('x${node.id}')`]
    case 'loop':
      return [`for (let turn = 0; turn < ${node.times}; turn++) {`, ...indent(printSeq(node.body)), '}']
  }
}

function printBody(node: Step): string {
  const parts = [
    ...(node.timeoutMs === undefined ? [printWork(node.work)] : []),
    ...(node.fails > 0 && node.timeoutMs !== undefined
      ? [` if (step.attempt <= ${node.fails}) await delay(${node.timeoutMs + 20})`]
      : []),
    ...(node.fails > 0 ? [` if (step.attempt <= ${node.fails}) throw new Error('x${node.id}')`] : []),
    ...(node.updates ? [` step.update((draft) => void draft.list.push('u${node.id}'))`] : []),
    ...(node.remembers ? [` await step.memory.of(ctx.threadId).remember('u${node.id}')`] : []),
    ` return ${node.id} `,
  ]
  return parts.filter((part) => part !== '').join(';')
}

function printStepOptions(node: Step): string {
  const options = [
    `retry: { attempts: ${node.attempts}, minMs: 1 }`,
    ...(node.undo === undefined ? [] : [`undo: ${printUndo(node.undo)}`]),
    ...(node.onFailure === 'fallback'
      ? ['fallback: () => 0']
      : node.onFailure === undefined
        ? []
        : [`onFailure: '${node.onFailure}'`]),
    ...(node.timeoutMs === undefined ? [] : [`timeoutMs: ${node.timeoutMs}`]),
    ...(node.checkpoint === false ? ['checkpoint: false'] : []),
  ]
  return `{ ${options.join(', ')} }`
}

function printSectionOptions(node: Section): string {
  const options = [
    `retry: { attempts: ${node.attempts}, minMs: 1 }`,
    ...(node.undo === undefined ? [] : [`undo: ${printUndo(node.undo)}`]),
    ...(node.onFailure === 'fallback'
      ? ['fallback: () => ({})']
      : node.onFailure === undefined
        ? []
        : [`onFailure: '${node.onFailure}'`]),
  ]
  return `{ ${options.join(', ')} }`
}

function printEffect(node: Effect): string {
  const sendings = node.sendings.length === 0 ? '' : ` /* first: ${node.sendings.join(', ')} */`
  const declared = { idempotent: 'idempotent: true, ', check: 'check: (key) => world.find(key), ', neither: '' }[node.declared]
  const key = node.key === undefined ? '' : `key: '${node.key}', `
  const undo = node.undo === undefined ? '' : `, undo: ${printUndo(node.undo)}`
  return `{ ${key}${declared}retry: { attempts: ${node.attempts}, minMs: 1 }, run: async (key) => {${printWork(node.work)} return world.send(key)${sendings} }${undo} }`
}

function printUndo(kind: string): string {
  return kind === 'named' ? "'takeBack'" : '(result) => void undone.push(result)'
}

function printWork(work: Work): string {
  if (work === 'sync') return ''
  if (work === 'microtask') return ' await Promise.resolve()'
  return work === 'immediate' ? ' await setImmediate()' : ` await delay(${work.ms})`
}

function printAct(act: Act, nth: number): string {
  switch (act.kind) {
    case 'signal':
      return `await hf.signal('r', '${act.name}')`
    case 'answer':
      return `await answerFirstQuestion() // ${act.how}`
    case 'resolve':
      return 'await resolveUnsureEffects()'
    case 'cancel':
      return `await run.cancel({ undo: ${act.undo} })`
    case 'rollback':
      return `await run.rollback(checkpoints[Math.floor(${act.to.toFixed(3)} * checkpoints.length)])`
    case 'edit':
      return "await hf.thread('r').update((draft) => void draft.edits.push('edit'))"
    case 'delete':
      return `await hf.thread('r').delete(); await hf.start(…)`
    case 'fork':
    case 'replace':
      return printFork(act, `copy${nth}`)
    case 'rewind':
      return `await hf.thread('r').rewind(checkpoints[Math.floor(${act.to.toFixed(3)} * checkpoints.length)])`
    case 'advance':
      return `clockMs += ${act.ms}`
    default:
      return `await run.${act.kind}()`
  }
}

function printFork(act: Extract<Act, { kind: 'fork' | 'replace' }>, copy: string): string {
  const thread = act.of < 0.5 ? "'r'" : `others[Math.floor(${(act.of * 2 - 1).toFixed(3)} * others.length)]`
  const options =
    act.kind === 'replace'
      ? `, { replace: { [completed[Math.floor(${act.call.toFixed(3)} * completed.length)]]: other } }`
      : act.edits
        ? ", { edit: (draft) => void draft.edits.push('fork') }"
        : ''
  const then =
    act.fate === 'resume'
      ? ''
      : act.fate === 'cancel'
        ? `; await ${copy}.cancel()`
        : `; await ${copy}.rollback(itsCheckpoints[Math.floor(${act.fate.rollback.toFixed(3)} * itsCheckpoints.length)])`
  const at = `checkpoints[Math.floor(${act.at.toFixed(3)} * checkpoints.length)]`
  return `const ${copy} = await (await hf.thread(${thread}).fork(${at}${options})).resume()${then}`
}

function printFault(fault: Fault): string {
  const at = `write ${fault.write}`
  switch (fault.kind) {
    case 'crash':
      return `the process ends right ${fault.when} ${at}, and another takes over`
    case 'kill':
      return `the process is killed right ${fault.when} ${at}, and another takes over`
    case 'lost_reply':
      return `the reply to ${at} is lost`
    case 'outage':
      return `the store refuses ${at}`
    case 'lost_lease':
      return `the lease is over at ${at}`
  }
}

function indent(lines: readonly string[]): string[] {
  return lines.map((line) => `  ${line}`)
}
