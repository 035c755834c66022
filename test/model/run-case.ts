import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as delay } from 'node:timers/promises'
import type { InboxItem, RunEvent, RunHandle, RunInfo } from 'holdfast'
import { type Act, type Fault, type PlannedAct, whenAllHaveEnded } from './acts.ts'
import type { Case } from './case.ts'
import { type CopyOptions, forkAndContinue } from './copies.ts'
import { type Features, findFeatures } from './features.ts'
import { type Ground, openGround } from './grounds.ts'
import { firstInput, Interpreter } from './interpret.ts'
import { Journal, type Note } from './journal.ts'
import { endOfCopy } from './judge-copies.ts'
import { nodesOf, type Program, walk, withChildren } from './program.ts'
import { rewindAndLook } from './rewinds.ts'
import { leaseMs, SimulatedProcess, soon } from './simulated-process.ts'
import { holdfast } from './target.ts'
import type { ModelState } from './values.ts'

/** What is known of a run when everything is over. */
export interface ObservedRun {
  readonly info: RunInfo
  readonly program: Program
  readonly events: readonly RunEvent[]
  readonly output: unknown
  readonly error: unknown
  readonly state: unknown
  readonly stateAtHead: unknown
  /** What its thread adds up to now, and which facts are known about it. */
  readonly listNow: readonly string[]
  readonly facts: readonly string[]
  /** Every position of its thread's log that a run of the case wrote. */
  readonly headSeq: number
}

export interface Observation {
  readonly journal: Journal
  readonly runs: readonly ObservedRun[]
  readonly inbox: readonly InboxItem[]
  /** What the user's own table has, where there is one. */
  readonly rows: readonly { readonly run: string; readonly node: string }[]
  /** What was seen on the way that must not be. */
  readonly seen: readonly string[]
  readonly features: Features
}

export const rootId = 'r'

/** A quiet time after which nothing moves by itself any more, if all is well. */
const quietMs = 12
/** How long a run may show no sign of life before it counts as stuck, in rounds of growing length. */
const stuckRounds = 12

export interface RunCaseOptions {
  readonly url?: string
  /** Says what is being done, for a case that does not come to its end. */
  readonly progress?: { phase: string }
}

export async function runCase(given: Case, { url, progress = { phase: '' } }: RunCaseOptions = {}): Promise<Observation> {
  const features = await findFeatures()
  let offsetMs = 0
  const ground = await openGround(given.store, () => offsetMs, url)
  const advance = (ms: number) => {
    offsetMs += ms
  }
  const table = new Table({ given, ground, features, advance, progress })
  try {
    return await table.play()
  } finally {
    progress.phase = 'closing'
    await table.clear()
    await ground.close()
  }
}

let tables = 0

export interface TableOptions {
  readonly given: Case
  readonly ground: Ground
  readonly features: Features
  /** Moves the clock of the store. */
  readonly advance: (ms: number) => void
  readonly progress: { phase: string }
  /** Given: other processes execute the runs, and write to it as well. */
  readonly journal?: Journal
  /** Whether one of them is up: while none is, nothing can move. */
  readonly isManned?: () => boolean
  /** Makes names unique in the store. */
  readonly suffix?: string
}

/** The table at which a case is played: its clients, its clock, its journal. */
export class Table {
  readonly #case: Case
  readonly #ground: Ground
  readonly #features: Features
  readonly owner: string
  readonly #advance: (ms: number) => void
  readonly #journal: Journal
  /** Another process executes the runs. */
  readonly #isRemote: boolean
  readonly #isManned: () => boolean
  readonly #seen: string[] = []
  readonly #processes: SimulatedProcess[] = []
  readonly #clients: SimulatedProcess[] = []
  readonly #programs = new Map<string, Program>()
  /** Workflows of children that their parent waits for. */
  readonly #attached = new Set<string>()
  readonly #pending: PlannedAct[]
  /** For when all runs have ended. */
  readonly #late: PlannedAct[]
  /** Copies that were retried. */
  readonly #retried = new Set<string>()
  readonly #doing = new Set<Promise<void>>()
  readonly #sent = new Map<string, number>()
  readonly #phase: { phase: string }
  readonly #outside = AsyncLocalStorage.snapshot()
  #writes = 0
  readonly #suffix: string
  readonly #reader: ReturnType<typeof makeReader>
  #acts = 0
  #counted = 0
  readonly #progress = new Set<string | number>()
  #resumes = 0
  #pauses = 0
  #wedged: PlannedAct | undefined
  #onWrite: (() => void) | undefined
  #retriesLeft: number
  #replacing: Promise<void> | undefined
  /** Faults come while it is. */
  #isPlaying = false

  constructor(options: TableOptions) {
    const { given, ground, features, advance, progress, journal, suffix } = options
    this.#suffix = suffix ?? `-${process.pid}-${++tables}`
    this.#reader = makeReader(this.#suffix)
    this.owner = `case-${given.seed}${this.#suffix}`
    this.#case = given
    this.#ground = ground
    this.#features = features
    this.#advance = advance
    this.#phase = progress
    this.#journal = journal ?? new Journal()
    this.#isRemote = journal !== undefined
    this.#isManned = options.isManned ?? (() => true)
    const acts = [...given.acts].sort((a, b) => a.afterNotes - b.afterNotes)
    this.#pending = acts.filter(({ afterNotes }) => afterNotes < whenAllHaveEnded)
    this.#late = acts.filter(({ afterNotes }) => afterNotes >= whenAllHaveEnded)
    this.#retriesLeft = given.retries
    for (const program of withChildren(given.program)) {
      this.#programs.set(`${program.name}${this.#suffix}`, program)
      for (const { node } of walk(program))
        if (node.kind === 'call' && !node.isDetached) this.#attached.add(`${node.child.name}${this.#suffix}`)
    }
  }

  async play(): Promise<Observation> {
    this.#phase.phase = 'opening clients'
    if (!this.#isRemote) await this.#startClient(0)
    await this.#startClient(1)
    this.#phase.phase = 'making the table of rows'
    await this.#readRows()
    this.#isPlaying = true
    const stop = this.#journal.onWrite(() => this.#heedMoments())
    this.#phase.phase = 'starting'
    await this.#start(1)
    await this.#drive()
    stop()
    this.#isPlaying = false
    return await this.#observe()
  }

  async clear(): Promise<void> {
    this.#isPlaying = false
    for (const process of this.#processes) {
      this.#phase.phase = `closing client ${process.nth}${process.isDead ? ', dead' : ''}`
      await process.close()
    }
  }

  /** That of the second client, to which no faults happen. */
  get #hf() {
    return this.#client(1).hf
  }

  /** The first one may be a process of its own. */
  #client(index: number): SimulatedProcess {
    return this.#clients[index] ?? (this.#clients[1] as SimulatedProcess)
  }

  async #start(client: number): Promise<void> {
    const { hf } = this.#client(client)
    await hf.start(`${this.#case.program.name}${this.#suffix}`, firstInput(this.#case.program), { id: rootId })
  }

  async #startClient(index: number): Promise<void> {
    const process = await SimulatedProcess.start({
      ...{ nth: this.#processes.length, store: await this.#ground.openStore(), owner: this.owner },
      hasWorker: index === 0 || (this.#case.hasSecondWorker && !this.#isRemote),
      workflows: (of) => {
        const interpreter = new Interpreter(this.#journal, of, this.#features, this.#suffix)
        const workflows = [this.#reader, ...[...this.#programs.values()].map((program) => interpreter.workflow(program))]
        const told = ({ id, kind, runId }: { id: string; kind: string; runId: string }) => {
          if (!of.isDead) this.#journal.write({ of: 'told', id, kind, run: runId })
        }
        return { workflows, ...(this.#case.notifies && { notify: { name: `ear${this.#suffix}`, deliver: told } }) }
      },
      faultAt: () => (index === 0 ? this.#faultAtWrite() : undefined),
      onFault: (fault, of) => this.#strike(fault, of),
      onWritten: (act) => this.#written(index, act),
    })
    this.#processes.push(process)
    this.#clients[index] = process
  }

  /** The process that executes the runs was killed. */
  noteKill(fault: Fault): void {
    this.#journal.write({ of: 'fault', fault })
  }

  // ── faults ───────────────────────────────────────────────────────────────

  #faultAtWrite(): Fault | undefined {
    if (!this.#isPlaying) return undefined
    const nth = ++this.#writes
    return this.#case.faults.find(({ write }) => write === nth)
  }

  async #strike(fault: Fault, process: SimulatedProcess): Promise<void> {
    const { awaiting } = process
    this.#journal.write({ of: 'fault', fault, ...(awaiting.length > 0 && { awaiting }) })
    if (fault.kind === 'crash') {
      process.die()
      await process.untilStill()
      // Another process begins where this one ended, once its leases are over.
      this.#advance(leaseMs + 1)
      this.#replacing = this.#startClient(0)
    } else if (fault.kind === 'lost_lease') {
      this.#advance(leaseMs + 1)
      await delay(25)
    }
  }

  /** A write of a client is done, its reply is on the way: an act that was to come in between comes now. */
  async #written(client: number, _act: string): Promise<void> {
    this.#onWrite?.()
    const wedged = this.#wedged
    if (client !== 0 || wedged === undefined) return
    this.#wedged = undefined
    const reached = new Promise<void>((resolve) => {
      this.#onWrite = resolve
    })
    const done = this.#do(wedged)
    await soon(Promise.race([reached, done]), 15)
    this.#onWrite = undefined
  }

  // ── acts ─────────────────────────────────────────────────────────────────

  #heedMoments(): void {
    while (this.#pending[0] !== undefined && this.#pending[0].afterNotes <= this.#journal.notes.length) {
      const next = this.#pending.shift() as PlannedAct
      if (next.isWedged && this.#wedged === undefined && !this.#isRemote) this.#wedged = next
      else void this.#do(next)
    }
  }

  /** What somebody does is no part of the body that has just noted something. */
  #do(planned: PlannedAct): Promise<void> {
    return this.#outside(() => this.#doOutside(planned))
  }

  #doOutside({ act, client }: PlannedAct): Promise<void> {
    const nth = ++this.#acts
    const done = (async () => {
      this.#journal.write({ of: 'act', nth, act, client, stage: 'begins' })
      const process = this.#client(client)
      let outcome: { code?: string; detail?: string } = {}
      try {
        await Promise.race([this.#perform(act, client, nth), process.died])
      } catch (error) {
        const { code, message } = error as { code?: string; message: string }
        outcome = { code: code ?? 'error', detail: message }
      }
      // Nobody hears what a call of a dead process comes to.
      if (process.isDead) return
      this.#journal.write({ of: 'act', nth, act, client, stage: 'ends', ...outcome })
    })()
    this.#doing.add(done)
    void done.finally(() => this.#doing.delete(done))
    return done
  }

  async #perform(act: Act, client: number, nth: number): Promise<void> {
    const { hf } = this.#client(client)
    const run = async () => hf.runs.get(rootId)
    switch (act.kind) {
      case 'signal':
        return hf.signal(rootId, act.name, nth)
      case 'answer':
        return this.#answer(hf, act.how)
      case 'resolve':
        return this.#resolve(hf)
      case 'pause':
        return (await run()).pause()
      case 'resume':
        return (await run()).resume()
      case 'cancel':
        return (await hf.runs.get(act.run ?? rootId)).cancel({ undo: act.undo })
      case 'retry':
        return (await hf.runs.get(act.run ?? rootId)).retry()
      case 'rollback': {
        const thread = hf.thread(rootId)
        const checkpoints = await thread.checkpoints()
        const to = checkpoints[Math.floor(act.to * checkpoints.length)]
        if (to === undefined) return
        await (await run()).rollback(to.checkpoint)
        return
      }
      case 'edit':
        return hf.thread(rootId).update<{ edits?: string[] }>((draft) => {
          draft.edits ??= []
          draft.edits.push(`edit${nth}`)
        })
      case 'delete':
        await hf.thread(rootId).delete()
        return this.#start(client)
      case 'fork':
      case 'replace':
        return forkAndContinue(act, this.#copying(hf, nth))
      case 'rewind':
        return rewindAndLook(act.to, this.#copying(hf, nth))
      case 'advance':
        this.#advance(act.ms)
    }
  }

  #copying(hf: SimulatedProcess['hf'], nth: number): CopyOptions {
    return {
      ...{ hf, nth, rootId, journal: this.#journal },
      ...{ isPlayed: (workflow) => this.#programs.has(workflow), nodes: nodesOf(this.#case.program) },
      say: (sentence) => void this.#seen.push(sentence),
    }
  }

  async #answer(hf: SimulatedProcess['hf'], how: 'once' | 'twice' | 'wrong'): Promise<void> {
    for (const item of await hf.inbox()) {
      if (item.kind !== 'question') continue
      const options = { by: 'dana', shown: item.shown, ...('id' in item && { id: item.id as string }) }
      const answer = how === 'wrong' ? { wrong: true } : { ok: true }
      await hf.answer(item.runId, item.name, answer, options)
      if (how === 'twice') {
        await hf.answer(item.runId, item.name, { ok: false }, options).then(
          () => this.#seen.push(`second_answer: the second answer to "${item.name}" was taken as well`),
          (error: { code?: string }) => {
            // The thread may have been deleted between the two.
            const isGone = error.code === 'run_not_found' && this.#case.acts.some(({ act }) => act.kind === 'delete')
            if (!isGone && error.code !== 'already_answered' && error.code !== 'conflict' && error.code !== 'invalid_input')
              this.#seen.push(`second_answer: the second answer to "${item.name}" was refused with ${error.code}`)
          },
        )
      }
      return
    }
  }

  /** A person who looks at the world and says what is true, and says nothing of what may still happen. */
  async #resolve(hf: SimulatedProcess['hf']): Promise<void> {
    for (const item of await hf.inbox()) {
      if (item.kind !== 'effect' || this.#journal.isBeingSent(item.key)) continue
      const found = this.#journal.happening(item.key)
      const happened = found !== undefined
      // Noted first: the run may go by it before the answer is here, also where that gets lost.
      this.#journal.write({ of: 'resolved', key: item.key, happened })
      const result = found !== undefined && { result: found.result }
      await hf.resolve(item.key, { happened, ...result, by: 'dana' }).catch((error: Error & { code?: string }) => {
        if (error.code !== 'outcome_unknown') this.#journal.write({ of: 'resolved', key: item.key, happened: 'refused' })
        throw error
      })
    }
  }

  // ── to the end ───────────────────────────────────────────────────────────

  /** Does what the runs wait for until all of them have ended. What then does not end is stuck. */
  async #drive(): Promise<void> {
    let unmoved = 0
    let last = ''
    for (let round = 0; round < 400; round++) {
      this.#phase.phase = `round ${round}, ${unmoved} without progress`
      await this.#quiet(unmoved < 3 ? quietMs : Math.min(quietMs * 2 ** (unmoved - 2), 500))
      if (this.#replacing !== undefined) await this.#replacing
      this.#replacing = undefined
      if (this.#writes > 2_000 || this.#journal.notes.length > 10_000)
        return void this.#seen.push('spins: the runs are taken up again and again, and get nowhere')
      // What ends while the list is read may have started a run that is not in it.
      const isActing = this.#doing.size > 0
      const { items } = await this.#hf.runs.list()
      const now = `${this.#countProgress()} ${items.map(({ id, status }) => `${id} ${status}`).join()}`
      unmoved = now === last && this.#isManned() ? unmoved + 1 : 0
      last = now
      const unfinished = items.filter(({ status }) => status !== 'completed' && status !== 'failed' && status !== 'cancelled')
      if (this.#pending.length > 0 || this.#wedged !== undefined) {
        // Nothing moves by itself: what was planned for later comes now.
        if (unmoved > 0 || unfinished.length === 0) this.#nextMoment()
        if (round < 200) continue
      }
      if (unfinished.length === 0 && !isActing && this.#doing.size === 0) {
        const late = this.#late.shift()
        if (late !== undefined) {
          await this.#do(late)
          continue
        }
      }
      const root = items.find(({ id }) => id === rootId)
      if (root?.status === 'failed' && this.#retriesLeft > 0 && unfinished.length === 0) {
        this.#retriesLeft--
        await this.#do({ act: { kind: 'retry' }, client: 1, isWedged: false, afterNotes: 0 })
        continue
      }
      const failed = items.find(
        ({ id, status, forkedFrom }) => status === 'failed' && forkedFrom !== undefined && !this.#retried.has(id),
      )
      if (failed !== undefined && this.#case.retries > 0 && unfinished.length === 0) {
        this.#retried.add(failed.id)
        await this.#do({ act: { kind: 'retry', run: failed.id }, client: 1, isWedged: false, afterNotes: 0 })
        continue
      }
      // Those of a deleted life are nobody's any more.
      const isDeleted = this.#journal.notes.some((note) => note.of === 'act' && note.act.kind === 'delete')
      if (unmoved === 2 && !isDeleted) {
        const cancelled = new Set(items.filter(({ status }) => status === 'cancelled').map(({ id }) => id))
        for (const { id, parent, status } of unfinished)
          if (cancelled.has(parent ?? '')) this.#seen.push(`child_left: the parent is cancelled, and child "${id}" is ${status}`)
      }
      if (unfinished.length === 0) {
        if (!isActing && this.#doing.size === 0) return
        if (unmoved > 3 * stuckRounds) return void this.#seen.push('act_hangs: all runs have ended and a control call has not')
        continue
      }
      // One that executes may wait for what it can't see the end of, within its grace.
      const isExecuting = unfinished.some(({ status }) => status === 'running' || status === 'pending')
      // A timer that was set before the clock moved goes by real time, for at most a minute.
      const isMoved = this.#journal.notes.some((note) => note.of === 'act' && note.act.kind === 'advance')
      if (unmoved > (isExecuting ? (isMoved ? 12 : 3) * stuckRounds : stuckRounds)) {
        for (const { id, status, reason, workflow } of unfinished)
          this.#seen.push(`stuck: run "${id}" of ${workflow} is ${status}${reason === undefined ? '' : ` (${reason})`} for ever`)
        return
      }
      this.#phase.phase = `round ${round}, helping`
      if (!(await this.#help(unfinished, unmoved))) return
    }
    this.#seen.push('endless: the runs do not come to an end')
  }

  /** What was noted, calls of the function that only read its log again aside. */
  #countProgress(): number {
    const { notes } = this.#journal
    for (; this.#counted < notes.length; this.#counted++) {
      const note = notes[this.#counted]
      if (note?.of !== 'call' && note?.of !== 'entered')
        this.#progress.add(note?.of === 'given' ? `${note.run} ${note.at}` : this.#counted)
    }
    return this.#progress.size
  }

  #nextMoment(): void {
    const next = this.#wedged ?? this.#pending.shift()
    this.#wedged = undefined
    if (next !== undefined) void this.#do(next)
  }

  /** Gives unfinished runs what they wait for. False: one can't come to its end any more. */
  async #help(unfinished: readonly RunInfo[], unmoved: number): Promise<boolean> {
    for (const { id, status, reason, error, forkedFrom } of unfinished) {
      if (status !== 'paused') continue
      const isCopy = forkedFrom !== undefined
      if (reason === 'mismatch' || reason === 'poisoned') {
        this.#seen.push(`${reason}: run "${id}" is paused: ${error?.message}`)
        return false
      }
      if (reason === 'retries' && ++this.#pauses > 5) {
        // It fails whenever it is tried: somebody gives it up.
        if (id === rootId) await this.#do({ act: { kind: 'cancel', undo: true }, client: 1, isWedged: false, afterNotes: 0 })
        else {
          this.#journal.write({ of: 'given_up', run: id })
          await this.#helpRun(id, (run) => run.cancel())
        }
        continue
      }
      if (reason === 'undo' && (id === rootId || isCopy) && error?.message.includes('its call was rolled back before') === true) {
        // Only the call could say how it is undone: somebody does it by hand.
        const act = { kind: 'cancel', undo: false, ...(isCopy && { run: id }) } as const
        await this.#do({ act, client: 1, isWedged: false, afterNotes: 0 })
        continue
      }
      if (++this.#resumes > 30) {
        this.#seen.push(`endless: run "${id}" was resumed 30 times and is paused again (${reason})`)
        return false
      }
      if (isCopy) this.#journal.write({ of: 'resumed', run: id })
      await this.#helpRun(id, (run) => run.resume())
    }
    // Somebody deals with what waits for a person, as a person would: the first time at once, later when nothing else moves.
    await this.#answer(this.#hf, 'once').catch(() => {})
    await this.#resolve(this.#hf).catch(() => {})
    if (unmoved === 0) return true
    for (const { id, status, workflow } of unfinished) {
      if (status === 'paused') continue
      for (const name of signalsOf(this.#programs.get(workflow) as Program)) {
        const key = `${id} ${name}`
        const count = this.#sent.get(key) ?? 0
        if (count > unmoved) continue
        this.#sent.set(key, count + 1)
        await this.#hf.signal(id, name, `driven${count}`).catch(() => {})
      }
    }
    if (unmoved > 1) this.#advance(61_000)
    // A worker that has given a run up because its lease was over may have had it extended by a write that was under way.
    const isExtended = this.#journal.notes.some((note) => note.of === 'fault' && note.fault.kind === 'lost_lease')
    if (unmoved === 8 && isExtended) this.#advance(leaseMs + 1)
    return true
  }

  /** It may have moved since it was listed, or be gone: a thread that is being deleted, and not begun anew yet. */
  async #helpRun(id: string, help: (run: RunHandle) => Promise<unknown>): Promise<void> {
    const run = await this.#hf.runs.get(id).catch((error: { code?: string }) => {
      if (error.code !== 'run_not_found') throw error
    })
    if (run !== undefined) await help(run).catch(() => {})
  }

  /** Until nothing was noted or written for a while. */
  async #quiet(ms: number): Promise<void> {
    for (let last = -1, times = 0; times < 50; times++) {
      this.#journal.pull()
      const now = this.#journal.notes.length + this.#writes
      if (now === last) return
      last = now
      await delay(ms)
    }
  }

  async #observe(): Promise<Observation> {
    this.#phase.phase = 'observing'
    const items = (await this.#hf.runs.list()).items.filter(({ workflow }) => workflow !== this.#reader.name)
    const runs: ObservedRun[] = []
    for (const info of items) {
      const run = await this.#hf.runs.get(info.id)
      const thread = this.#hf.thread(info.threadId)
      const ended = ['completed', 'failed', 'cancelled'].includes(info.status)
      const result = ended
        ? await run.result().then(
            (output) => ({ output, error: undefined }),
            (error: unknown) => ({ output: undefined, error }),
          )
        : {}
      const checkpoints = await thread.checkpoints()
      const head = checkpoints.at(-1)
      runs.push({
        ...{ info, program: this.#programs.get(info.workflow) as Program, events: await run.events() },
        output: undefined,
        error: undefined,
        ...result,
        ...(await this.#statesOf(thread, info, head)),
        ...(await this.#factsOf(thread)),
        headSeq: head?.seq ?? 0,
      })
    }
    await this.#untilTold(runs)
    return {
      ...{ journal: this.#journal, runs, inbox: await this.#hf.inbox(), seen: this.#seen, features: this.#features },
      rows: await this.#readRows(),
    }
  }

  async #factsOf(thread: ReturnType<SimulatedProcess['hf']['thread']>): Promise<Pick<ObservedRun, 'listNow' | 'facts'>> {
    const listNow = ((await thread.state()) as Partial<ModelState> | undefined)?.list ?? []
    if (!this.#features.facts) return { listNow, facts: [] }
    const { items } = await this.#hf.memory.of(thread.id).list({ fork: thread.id, limit: 1_000 })
    return { listNow, facts: items.map(({ text }) => text) }
  }

  /** A thread that was rewound has another state than its run had left. */
  async #statesOf(
    thread: ReturnType<SimulatedProcess['hf']['thread']>,
    info: RunInfo,
    head: { readonly checkpoint: string } | undefined,
  ): Promise<Pick<ObservedRun, 'state' | 'stateAtHead'>> {
    const state = await thread.state()
    const stateAtHead = head === undefined ? undefined : await thread.stateAt(head.checkpoint)
    const isRewound = this.#journal.notes.some((note) => note.of === 'rewinding' && note.thread === info.threadId)
    if (!isRewound || info.checkpoint === undefined) return { state, stateAtHead }
    if (JSON.stringify(state) !== JSON.stringify(stateAtHead))
      this.#seen.push(`state_at_head: thread "${info.threadId}": stateAt its last checkpoint is not its state`)
    const own = await thread.stateAt(info.checkpoint)
    return { state: own, stateAtHead: own }
  }

  /** Messages come after what they are about. They are waited for, not for ever. */
  async #untilTold(runs: readonly ObservedRun[]): Promise<void> {
    if (!this.#case.notifies || this.#seen.length > 0) return
    const telling = runs.filter(({ info }) => info.forkedFrom !== undefined || !this.#attached.has(info.workflow))
    const ends = telling.flatMap((run) => run.events.filter(({ seq }) => seq > endOfCopy(run)))
    const due = ends.filter(({ type }) => type === 'run_completed' || type === 'run_failed').length
    // Of these runs: the machine's own, which read tables, tell of their ends, too.
    const ids = new Set(telling.map(({ info }) => info.id))
    const isEnd = (note: Note) => note.of === 'told' && ids.has(note.run) && (note.kind === 'completed' || note.kind === 'failed')
    const told = () => {
      this.#journal.pull()
      return new Set(this.#journal.notes.flatMap((note) => (note.of === 'told' && isEnd(note) ? [note.id] : []))).size
    }
    // A process that was killed at it takes a while to be replaced on a busy machine.
    for (let tries = 0; tries < (this.#isRemote ? 1_500 : 100) && told() < due; tries++) await delay(20)
    await delay(20)
    this.#journal.pull()
  }

  async #readRows(): Promise<{ run: string; node: string }[]> {
    if (
      ![...withChildren(this.#case.program)].some((program) => [...walk(program)].some(({ node }) => node.kind === 'transaction'))
    )
      return []
    // Several cases may make the table at the same time; Postgres then refuses all but one.
    for (let tries = 1; ; tries++) {
      try {
        return await this.#hf.run(this.#reader, undefined)
      } catch (error) {
        if (tries === 5) throw error
      }
    }
  }
}

/**
 * Reads the user's own table, as a user would; the first time it makes it. Each case has its own: a process of another one, which dies with it,
 * would keep it for as long as a lease lasts.
 */
export function makeReader(suffix: string) {
  return holdfast.workflow<undefined, { run: string; node: string }[]>(`reader${suffix}`, (ctx) =>
    ctx.transaction('read', async (tx) => {
      await tx.query('CREATE TABLE IF NOT EXISTS model_rows (owner TEXT, run TEXT, node TEXT)')
      return tx.query<{ run: string; node: string }>(`SELECT run, node FROM model_rows WHERE owner = '${ctx.owner}'`)
    }),
  )
}

function signalsOf(program: Program): string[] {
  const names = new Set<string>()
  for (const { node } of walk(program)) {
    if (node.kind === 'signal' && !node.isNever) names.add(node.name)
    if (node.kind === 'signals') for (const name of node.names) names.add(name)
  }
  return [...names]
}
