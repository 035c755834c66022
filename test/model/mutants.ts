// node --conditions=holdfast-source test/model/mutants.ts [--programs N] [NAME…]
//
// Plants faults in copies of the sources, in memory's store and in what is above the stores, and says which of them the machine sees.

import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { type Mutant, mutants } from '../mutants/mutants.ts'
import type { Violation } from './oracle.ts'

type Planted = Pick<Mutant, 'name' | 'wrong' | 'edits'>

/** Faults of the kinds that this machine was built to see. */
const own: readonly Planted[] = [
  {
    name: 'memory-epoch-unchecked',
    wrong: 'a step is written under a lease that was lost',
    edits: [
      {
        file: 'stores/memory/commit.ts',
        find: 'row === undefined || row.run.epoch !== guard.epoch || row.run.leaseId !== guard.leaseId',
        put: 'row === undefined',
      },
    ],
  },
  {
    name: 'undo-unregistered',
    wrong: 'a result is durable, and its undo is forgotten where an order has come meanwhile',
    edits: [
      {
        file: 'engine/execution/run-journal.ts',
        find: 'if (undoable !== undefined && answer.ok)\n',
        put: 'if (undoable !== undefined && answer.ok && answer.hasMail !== true)\n',
      },
    ],
  },
  {
    name: 'undo-first-in-first-out',
    wrong: 'undos run in the order of the results',
    edits: [
      {
        file: 'engine/undo/unwinding.ts',
        find: 'const next = this.#undoes ? unwound.undos.next(afterSeq) : undefined',
        put: 'const next = this.#undoes ? unwound.undos.due(afterSeq).at(-1) : undefined',
      },
    ],
  },
  {
    name: 'undo-again',
    wrong: 'what was undone is undone again',
    edits: [
      {
        file: 'engine/undo/undos.ts',
        find: '.filter(({ seq }) => !undone.has(seq) && this.#done?.has(seq) !== true)',
        put: '.filter(({ seq }) => this.#done?.has(seq) !== true)',
      },
    ],
  },
  {
    name: 'writes-swapped',
    wrong: 'two writes of a batch change places',
    edits: [
      {
        file: 'engine/writing/committer.ts',
        find: 'this.#store.commit(changes).then(resolve, reject)',
        put: 'this.#store.commit(changes.reverse()).then((answers) => resolve([...answers].reverse()), reject)',
      },
    ],
  },
  {
    name: 'optional-first',
    wrong: 'kept results are handed out in the order in which they are asked for',
    edits: [
      {
        file: 'engine/replay/optional-results.ts',
        find: 'let first = 0\n',
        put: 'if (this.#asked.length > 0) return this.#asked.shift()\n    let first = 0\n',
      },
    ],
  },
  {
    name: 'end-of-a-begun-step-early',
    wrong: 'what ctx.begin began ends on a replay before results that came before it',
    edits: [
      {
        file: 'engine/execution/admission.ts',
        find: '    await this.#run.playback.turnOf(outcome)\n',
        put: '    await Promise.resolve(outcome)\n',
      },
    ],
  },
  {
    name: 'dropped-patches-stay',
    wrong: 'another attempt begins with what it makes again',
    edits: [
      {
        file: 'engine/replay/tape-builder.ts',
        find: 'if (patch !== undefined) patch.droppedAt ??= this.here',
        put: 'void patch',
      },
    ],
  },
  {
    name: 'kept-patches-dropped',
    wrong: 'another attempt loses what other results had changed after the failure',
    edits: [
      {
        file: 'engine/replay/reopen.ts',
        find: '    if (outcome.seq > from) tape.replaceOutcome({ ...outcome, isOptional: true })\n',
        put: '    if (outcome.seq > from) tape.drop(outcome.patch)\n    if (outcome.seq > from) tape.replaceOutcome({ ...outcome, isOptional: true })\n',
      },
    ],
  },
  {
    name: 'section-from-an-old-state',
    wrong: 'a section under way when its run failed continues from a state without what is done again',
    edits: [
      {
        file: 'engine/replay/reopen.ts',
        find: '  restartSections(tape, () => true)\n',
        put: '',
      },
    ],
  },
  {
    name: 'state-ahead',
    wrong: 'a recorded result shows the whole state instead of that from when it came',
    edits: [
      {
        file: 'engine/execution/admission.ts',
        find: 'if (showsState) this.#run.state.viewOf(call.within).advance(outcome.patchCount)',
        put: 'if (showsState) this.#run.state.viewOf(call.within).advance(this.#run.state.timeline.end)',
      },
    ],
  },
  {
    name: 'update-again',
    wrong: 'the recipe of an update runs again on a replay',
    edits: [
      {
        file: 'engine/execution/state-updates.ts',
        find: 'const recorded = run.tape.updates.get(updateKey(scope, count))\n',
        put: 'const recorded = count > 1 ? undefined : run.tape.updates.get(updateKey(scope, count))\n',
      },
    ],
  },
  {
    name: 'fork-undoes-shared-section',
    wrong: 'a copy undoes a section as a whole in which the original did something',
    edits: [
      {
        file: 'engine/undo/undoable.ts',
        find: 'return outcomes.some((one) => one.seq <= copiedUpTo && isDone(one) && isInScopeOrFallback(pathOf(one.key), scope))',
        put: 'return outcomes.length < 0 && isInScopeOrFallback(scope, scope)',
      },
    ],
  },
  {
    name: 'fork-starts-at-once',
    wrong: 'a copy runs before anybody resumes it',
    edits: [
      {
        file: 'control/fork-thread.ts',
        find: "threadId: this.#key.threadId, status: 'paused', reason: 'asked' },",
        put: "threadId: this.#key.threadId, status: 'pending', reason: null },",
      },
      {
        file: 'control/fork-thread.ts',
        find: 'leaseHolder: null, dueAt: null, claimsWithoutProgress: 0 }',
        put: 'leaseHolder: null, dueAt: this.#now, claimsWithoutProgress: 0 }',
      },
    ],
  },
  {
    name: 'fork-forgets-effects',
    wrong: 'a copy has no results of effects',
    edits: [
      {
        file: 'engine/replay/copy-tape.ts',
        find: 'if (runId !== this.#copy.runId || leftBehind.has(type)) return false\n',
        put: "if (runId !== this.#copy.runId || leftBehind.has(type) || type === 'effect_completed') return false\n",
      },
    ],
  },
  {
    name: 'fork-forgets-waits',
    wrong: 'a copy waits again for what had come',
    edits: [
      {
        file: 'engine/replay/copy-tape.ts',
        find: 'if (runId !== this.#copy.runId || leftBehind.has(type)) return false\n',
        put: "if (runId !== this.#copy.runId || leftBehind.has(type) || type === 'signal_received') return false\n",
      },
    ],
  },
  {
    name: 'fork-keeps-open-children',
    wrong: 'a copy waits for the children of the original',
    edits: [{ file: 'engine/replay/copy-tape.ts', find: "  child_started: 'child',\n", put: '' }],
  },
  {
    name: 'fork-keeps-old-positions',
    wrong: "what a copy's tape says was rolled back is somewhere else",
    edits: [
      { file: 'engine/replay/copy-tape.ts', find: "({ ...data, to: positionOf(data['to'] as number) })", put: '({ ...data })' },
    ],
  },
  {
    name: 'fork-forgets-origin',
    wrong: 'a copy that continues on another tape does not say where it is from',
    edits: [{ file: 'engine/writing/run-origin.ts', find: '    ...(forkedFrom !== undefined && { forkedFrom }),\n', put: '' }],
  },
  {
    name: 'replace-keeps-patch',
    wrong: 'a replaced call has changed the state all the same',
    edits: [{ file: 'engine/replay/copy-tape.ts', find: 'patch: null },\n', put: 'patch: record.patch },\n' }],
  },
  {
    name: 'replace-keeps-section',
    wrong: 'what was done inside a replaced section stays',
    edits: [
      {
        file: 'engine/replay/copy-tape.ts',
        find: '  return begunAt ?? outcome.seq\n',
        put: '  return begunAt === undefined ? outcome.seq : outcome.seq\n',
      },
    ],
  },
  {
    name: 'rewind-under-a-waiting-run',
    wrong: 'a thread is rewound while its run waits',
    edits: [
      {
        file: 'control/rewind-thread.ts',
        find: "['pending', 'running', 'waiting', 'paused'] as const",
        put: "['pending', 'running', 'paused'] as const",
      },
    ],
  },
  {
    name: 'rewind-to-a-neighbour',
    wrong: 'a thread is rewound to the checkpoint before',
    edits: [
      {
        file: 'control/rewind-thread.ts',
        find: '[headSeq, to].map((seq) => loadState(',
        put: '[headSeq, to - 1].map((seq) => loadState(',
      },
    ],
  },
]

const { values, positionals } = parseArgs({
  options: { programs: { type: 'string', default: '900' }, seed: { type: 'string', default: '1' } },
  allowPositionals: true,
})
const root = join(import.meta.dirname, '../..')
const isAbove = ({ edits }: Planted) =>
  edits.every(({ file }) => !/^(stores\/(sqlite|postgres|redis)|notify|copy-store)/.test(file))
const chosen = [...own, ...mutants.filter(isAbove)].filter(({ name }) => positionals.length === 0 || positionals.includes(name))
const known = new Set(
  (await play(root, 1_000_000)).map(({ seed, violations }) => `${seed} ${violations.map(({ rule }) => rule).join()}`),
)
console.log(`without a mutant: ${known.size} wrong`)
let caught = 0
for (const mutant of chosen) {
  const startedAt = performance.now()
  const verdict = await tryMutant(mutant)
  if (verdict.startsWith('seen')) caught++
  console.log(`${mutant.name.padEnd(26)} ${verdict}  (${((performance.now() - startedAt) / 1000).toFixed(0)} s)`)
}
console.log(`${caught} of ${chosen.length} seen`)

async function tryMutant({ edits }: Planted): Promise<string> {
  const copy = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    for (const part of ['src', 'package.json', 'tsconfig.json']) cpSync(join(root, part), join(copy, part), { recursive: true })
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
    for (const { file, find, put } of edits) {
      const path = join(copy, 'src', file)
      const text = readFileSync(path, 'utf8')
      if (text.split(find).length !== 2) return `stale: src/${file}`
      writeFileSync(
        path,
        text.replace(find, () => put),
      )
    }
    const found = await play(copy, known.size + 3)
    const fresh = found
      .filter(({ seed, violations }) => !known.has(`${seed} ${violations.map(({ rule }) => rule).join()}`))
      .sort((a, b) => a.seed - b.seed)
    const rules = [...new Set(fresh.flatMap(({ violations }) => violations.map(({ rule }) => rule)))]
    if (fresh.length === 0) return 'survived'
    const confirmed = await confirm(copy, fresh)
    const what = `${fresh.length} programs: ${rules.join(', ')}`
    return confirmed === undefined ? `survived (${what}, and none when played again)` : `seen in ${what}, with seed ${confirmed}`
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

/** The first case that goes wrong again when it is played alone, and does not without the mutant. */
async function confirm(copy: string, found: readonly { seed: number; violations: Violation[] }[]): Promise<string | undefined> {
  if (found.some(({ seed }) => seed === -1)) return 'none: the process hung or died'
  for (const { seed } of found.slice(0, 8)) {
    const isWrong = async (folder: string) => (await play(folder, 1, { programs: '1', seed: String(seed) })).length > 0
    const isMutantWrong = (await isWrong(copy)) || (await isWrong(copy))
    if (isMutantWrong && !(await isWrong(root)) && !(await isWrong(root))) return String(seed)
  }
  return undefined
}

async function play(
  folder: string,
  enough: number,
  { programs, seed } = values,
): Promise<{ seed: number; violations: Violation[] }[]> {
  const program = join(import.meta.dirname, 'main.ts')
  const args = [
    '--conditions=holdfast-source',
    program,
    '--programs',
    programs,
    '--seed',
    seed,
    '--json',
    '--enough',
    String(enough),
  ]
  const child = spawn(process.execPath, args, {
    env: { ...process.env, HOLDFAST_MODEL_ON: folder },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), 240_000)
  await new Promise((resolve, reject) => child.on('error', reject).on('close', resolve))
  clearTimeout(timer)
  if (output === '') return [{ seed: -1, violations: [{ rule: 'process_died', what: 'the process hung or died' }] }]
  return (JSON.parse(output) as { findings: { seed: number; violations: Violation[] }[] }).findings
}
