import type { Codec } from '../../model/codec.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { addUsage, type Budget, noUsage, type UsageTotal } from '../../model/usage.ts'
import { countRollbacks } from './count-rollbacks.ts'
import { around, fallbackPath, innermost, isInside, pathOf } from './scope-paths.ts'

/**
 * What a run has already done, read from its log: the tape that a replay follows.
 *
 *   T1  Outcomes come in log order; that is the order in which a replay hands them out.
 *   T2  A call is known by kind, path and count, never by time or arrival.
 *   T3  A failure that was reopened (retry, resume) is no outcome, but its attempts still count.
 *   T4  Whatever is reopened takes its patch with it. A patch that is not dropped belongs to something that does not run again.
 */
export interface Tape {
  readonly outcomes: readonly Outcome[]
  readonly calls: ReadonlyMap<CallKey, CallHistory>
  /** Values of ctx.now, ctx.random and ctx.uuid. */
  readonly values: ReadonlyMap<CallKey, unknown>
  /** Where they stand. */
  readonly valuesAt: ReadonlyMap<CallKey, number>
  /** All changes of the thread's state since the tape began, edits by hand included, in log order. */
  readonly patches: readonly LinePatch[]
  /** For each recorded ctx.update, by scope and count: how many of `patches` it needs applied. */
  readonly updates: ReadonlyMap<UpdateKey, RecordedUpdate>
  /** Streams that the function itself writes to; `isStale` where it was retried or rolled back since: it will write all of it anew. */
  readonly streams: ReadonlyMap<string, { readonly isStale: boolean }>
  /** Which continuation of the run this is, from 1. */
  readonly number: number
  /** When the run was last retried, by the store's clock. */
  readonly retriedAt?: number
  /** What the run has used so far, its steps aside, which are counted as calls. */
  readonly usage: UsageTotal
  /** Calls of ctx.usage that are booked, those aside of attempts of sections that are over: another one uses anew. */
  readonly booked: ReadonlySet<CallKey>
  /** What was booked for children, by run. */
  readonly usageOfChildren: ReadonlyMap<string, UsageTotal>
  /** Limits that were raised since it began. */
  readonly raised: Budget
  /** Positions of results that were undone since. */
  readonly undone: ReadonlySet<number>
  /** Takeovers: the epoch that each began, and what was running. */
  readonly recoveries: readonly Recovery[]
  /** Position of the last retry or rollback: word of children that was sent before it may be gone. */
  readonly renewedSeq: number
  /** Children whose work was undone, by the ids of their runs. */
  readonly undoneChildren: ReadonlySet<string>
  /** How many rollbacks went over a call, where any did. */
  readonly rollbacks: ReadonlyMap<CallKey, number>
  /** What was rolled back: positions after `from` and before `to`. */
  readonly rolledBack: readonly Stretch[]
  /** What the run was told to do instead of going on, and has not done yet. */
  readonly order?: Order
}

/** A takeover of the run from a holder that had gone silent. */
export interface Recovery {
  readonly epoch: number
  readonly running: readonly CallKey[]
}

/** Records between two positions, neither of which is part of it. */
export interface Stretch {
  readonly from: number
  readonly to: number
}

/** A change of the thread's state, as the log has it. */
export interface LinePatch {
  readonly patch: Payload
  /** The version of the state definition that it brings; null where that stays. */
  readonly version: number | null
  readonly seq: number
  /** Who made it, for the error of one that no longer fits. */
  readonly step: string | null
  /** Nothing that a replay comes by shows it: an edit by hand, a migration, what was rolled back. */
  readonly isPassedBy: boolean
  readonly isEdit?: true
  /** It is to be made again, by decision of the record at this position. */
  droppedAt?: number
  /** It wrote down the state without what was dropped before. */
  readonly isRebuild?: true
  /** It took the state back to where so many patches were applied. */
  readonly backTo?: number
}

/** To undo what was done: all of it and end, cancelled or failed, or what came after a position and pause there. */
export type Order =
  /** With `undo: false` nothing is undone; what depends on the run ends all the same. */
  | { readonly kind: 'cancel'; readonly by?: string | undefined; readonly undo?: false; readonly replays?: false }
  /** With `replays: false` the function is not called: it brought its workers down. */
  | { readonly kind: 'rollback'; readonly to: number; readonly by?: string | undefined; readonly replays?: false }
  /** The function threw, or the time limit of the workflow has passed; under `undoOnFailure` it undoes first. */
  | {
      readonly kind: 'fail'
      readonly error: Error
      readonly failed: readonly CallKey[]
      readonly undo?: false
      readonly replays?: never
    }

function replayable(order: Order | undefined): Order | undefined {
  if (order === undefined || order.kind === 'fail') return order
  const { replays: _, ...again } = order
  return again
}

export interface RecordedUpdate {
  readonly position: number
  /** Its own among `patches`; undefined where it changed nothing. */
  readonly patch?: LinePatch | undefined
  /** Its recipe threw this. */
  readonly error?: Error
  readonly seq: number
}

/** `step:gather/fetch#2`: kind, path and count of a call. */
export type CallKey = string
/** `gather#2`: the scope of an update, and which of its updates it is. */
export type UpdateKey = string
export type CallKind = 'step' | 'effect' | 'timer' | 'value' | 'signal' | 'question' | 'child'

/** A recorded result, waiting for the call that asks for it. */
export interface Outcome {
  readonly key: CallKey
  readonly seq: number
  readonly at: number
  readonly payload: Payload | null
  readonly isFailure: boolean
  /** How many of the tape's patches are applied once it is handed out. */
  readonly patchCount: number
  /** What its last attempt took. */
  readonly durationMs?: number
  /** Its own among them, if it changed the state. */
  readonly patch?: LinePatch | undefined
  /** Recorded after a failure that was reopened: handed out when asked for, and not missed when it is not. */
  readonly isLoose?: boolean
  /** A step that was skipped: it did nothing that could be undone. */
  readonly isSkip?: boolean
  /** Nobody asks for it: here the function was shown edits by hand. */
  readonly isShowing?: boolean
  /** A wait that the function withdrew: it throws, and is no failure. */
  readonly isWithdrawn?: boolean
}

export interface CallHistory {
  outcome?: Outcome
  /** Where its first record stands. */
  readonly begunAt: number
  /** Recorded failures of all time: the next attempt is one more. */
  failures: number
  /** Of these, the ones before the call was last reopened: they no longer use up attempts. */
  reopenedFailures: number
  /** Its failure was reopened. */
  wasReopened?: boolean
  /** Children: where the log of the child has the failure that failed the call last. */
  childEndSeq?: number
  /** Deaths of the worker while it was running. */
  deaths: number
  /** Its last attempt began and has not ended. */
  isRunning: boolean
  /** Streams that attempts wrote to, those aside that have failed. Void unless the call has an outcome. */
  opened?: { readonly attempt: number; readonly stream: string }[]
  /** Store time before which the next attempt must not begin. */
  retryAt?: number
  /** What was decided after the last failure, where it was not another attempt. */
  next?: 'fallback' | 'pause'
  lastError?: Error
  inputFingerprint?: string
  /** It said so when it began. Since 0.2 the record of its result says which undo it has. */
  hasUndo?: boolean
  /** Effects: the name of their undo, where it has one. */
  undo?: string
  /** Begun steps: where their beginning was recorded, if the function got them only after that. */
  begunFirstAt?: number
  /** Effects: the operation's key. Steps: their key, where it is not the plain name of the call. */
  key?: string
  /** What it did was undone, and it has not begun again since: it does under a new key. */
  isDueAnew?: true
  /** Effects: how far the operation got. */
  effect?: 'intended' | 'unsure' | 'happened' | 'not_happened'
  resolution?: unknown
  /** Effects: where somebody decided that it has happened. */
  decided?: { readonly seq: number; readonly payload: Payload | null }
  /** Timers, and waits that have a time limit: when it fires, by the store's clock. */
  fireAt?: number
  /** Signals: one that was taken, and did not match its schema when the run failed of it. */
  refused?: Outcome
  /** Sleeps: the length that was asked for, where it was one. */
  ms?: number
  /** Sleeps: where the timer was set. */
  setSeq?: number
  /** Sleeps: begun after a failure that was reopened, and perhaps because of it: one of another length begins anew. */
  isLoose?: true
  /** Recorded scopes: where the calls inside stand, the start of the attempt, and which failures inside failed it. */
  scope?: string
  started?: { readonly seq: number; readonly at: number; readonly patchCount: number }
  failed?: readonly CallKey[]
  /** Children and questions: what the child was started as, how the question was put. */
  begun?: { readonly seq: number; readonly data: Readonly<Record<string, unknown>> }
}

export const emptyTape: Tape = {
  outcomes: [],
  calls: new Map(),
  values: new Map(),
  valuesAt: new Map(),
  patches: [],
  updates: new Map(),
  streams: new Map(),
  number: 1,
  usage: noUsage,
  booked: new Set(),
  usageOfChildren: new Map(),
  raised: {},
  undone: new Set(),
  undoneChildren: new Set(),
  renewedSeq: 0,
  recoveries: [],
  rollbacks: new Map(),
  rolledBack: [],
}

export function callKey(kind: CallKind, path: string, count: number): CallKey {
  return `${kind}:${path}#${count}`
}

export function updateKey(scope: string | null, count: number): UpdateKey {
  return `${scope ?? ''}#${count}`
}

export function parseCallKey(key: CallKey): { path: string; count: number } {
  const end = key.lastIndexOf('#')
  return { path: key.slice(key.indexOf(':') + 1, end), count: Number(key.slice(end + 1)) }
}

export function readTape(records: readonly LogRecord[], codec: Codec, runId: string): Tape {
  const calls = new Map<CallKey, CallHistory>()
  const values = new Map<CallKey, unknown>()
  const valuesAt = new Map<CallKey, number>()
  const updates = new Map<UpdateKey, RecordedUpdate>()
  /** Recorded scopes by the path of the calls inside. */
  const scopes = new Map<string, CallHistory>()
  const keysOfScopes = new Map<string, CallKey>()
  /** The same, and also by the path of the calls in their fallbacks. */
  const sites = new Map<string, CallHistory>()
  const patches: LinePatch[] = []
  const outcomes = new Map<CallKey, Outcome>()
  const undone = new Set<number>()
  const recoveries: Recovery[] = []
  const streams = new Map<string, { isStale: boolean }>()
  const booked = new Set<CallKey>()
  const usageOfChildren = new Map<string, UsageTotal>()
  let number = 1
  let retriedAt: number | undefined
  let isRolledBack = false
  const begunAnew = new Map<CallKey, number>()
  const childEnds = new Map<number, string>()
  const undoneChildren = new Set<string>()
  let renewedSeq = 0
  let order: Order | undefined
  let usage = noUsage
  let raised: Budget = {}

  const call = (kind: CallKind, record: LogRecord): CallHistory => {
    const key = callKey(kind, record.step ?? '', record.count)
    let history = calls.get(key)
    if (history === undefined) {
      history = { failures: 0, reopenedFailures: 0, deaths: 0, isRunning: false, begunAt: record.seq }
      calls.set(key, history)
    }
    return history
  }
  const data = <T>(record: LogRecord): T => (record.payload === null ? {} : codec.decode(record.payload)) as T
  /** The change of the state that a record made. */
  const patchOf = (record: LogRecord): LinePatch | undefined => (record.patch === null ? undefined : patches.at(-1))
  const settle = (kind: CallKind, record: LogRecord, isFailure = false): void => {
    const key = callKey(kind, record.step ?? '', record.count)
    const history = call(kind, record)
    history.isRunning = false
    const { type, seq, at, payload } = record
    const outcome: Mutable<Outcome> = { key, seq, at, payload, isFailure, patchCount: patches.length }
    if (record.durationMs !== null) outcome.durationMs = record.durationMs
    if (type === 'step_skipped' || type === 'effect_skipped') outcome.isSkip = true
    if (type === 'wait_withdrawn') outcome.isWithdrawn = true
    if (type === 'state_updated') outcome.isShowing = true
    const patch = patchOf(record)
    if (patch !== undefined) outcome.patch = patch
    history.outcome = outcome
    outcomes.delete(key)
    outcomes.set(key, outcome)
    if (sites.size === 0) return
    // Scopes in which something gets done are not what brings the worker down, however often it dies in them.
    for (const scope of around(pathOf(key), sites)) scope.deaths = 0
  }
  /** Position of the record that is being read: it decides what is reopened. */
  let here = 0
  const drop = (patch: LinePatch | undefined): void => {
    if (patch !== undefined) patch.droppedAt ??= here
  }
  const reopen = (key: CallKey): void => {
    const history = calls.get(key)
    if (history === undefined) return
    drop(history.outcome?.patch)
    if (key.startsWith('signal:') && history.outcome?.isFailure === false) history.refused = history.outcome
    delete history.outcome
    delete history.next
    delete history.retryAt
    // A wait that is begun anew has its whole time.
    delete history.fireAt
    history.reopenedFailures = history.failures
    history.wasReopened = true
    history.deaths = 0
    outcomes.delete(key)
    if (history.scope !== undefined) {
      reopenInside(history.scope, history.failed ?? [])
      // All of it came because the function had failed, which is called again.
      reopenUpdates(fallbackPath(history.scope), 0)
    }
    delete history.failed
  }
  /** What succeeded in a section is kept. What failed it is tried again, and what was updated after that is updated again. */
  const reopenInside = (scope: string, failed: readonly CallKey[]): void => {
    const areas = areasOf(failed)
    const isOfIt = (path: string) => isInside(path, scope) || isInside(path, fallbackPath(scope))
    const since = Math.min(...failed.map(failedAt))
    loosenSleeps(since, isOfIt)
    // Nothing inside says where it failed if it did by itself or took too long, also where its fallback failed after that.
    const isUnknown = failed.every((key) => isInside(pathOf(key), fallbackPath(scope)))
    waitAnew(isUnknown ? 0 : since, isOfIt)
    for (const key of failed) reopen(key)
    for (const [area, from] of areas) if (area === scope || (isInside(area, scope) && isEntered(area))) reopenUpdates(area, from)
    beginAnewInside(scope)
  }
  const loosenSleeps = (from: number, isOfIt: (path: string) => boolean): void => {
    for (const [key, history] of calls) {
      if (key.startsWith('timer:') && (history.setSeq ?? 0) > from && isOfIt(pathOf(key))) history.isLoose = true
    }
  }
  /** What the function withdrew after it had failed it may have withdrawn for that: it waits again, and says so once more. */
  const waitAnew = (from: number, isOfIt: (path: string) => boolean): void => {
    for (const [key, { seq, isWithdrawn }] of outcomes) if (isWithdrawn === true && seq > from && isOfIt(pathOf(key))) reopen(key)
  }
  /** A section that was under way, and began with something that is taken out and made again, begins again after it is made. */
  const beginAnewInside = (scope: string): void => {
    for (const history of calls.values()) {
      const { scope: own, isRunning, started } = history
      if (!isRunning || own === undefined || started === undefined || (scope !== '' && !isInside(own, scope))) continue
      if (patches.slice(0, started.patchCount).some(({ droppedAt }) => droppedAt === here)) history.isRunning = false
    }
  }
  /** It may have been set before, for a sleep that nobody asks for any more. */
  const setSleep = (record: LogRecord, history: CallHistory, ms: number | undefined): void => {
    history.setSeq = record.seq
    delete history.ms
    if (ms !== undefined) history.ms = ms
    delete history.isLoose
    delete history.outcome
    outcomes.delete(callKey('timer', record.step ?? '', record.count))
  }
  /** A section that keeps its outcome is not entered: nothing in it runs again. */
  const isEntered = (area: string): boolean => [...around(`${area}/`, sites)].every(({ outcome }) => outcome === undefined)
  /** The sections whose functions heard of these failures (empty: that of the run), each with where it heard of the first. */
  const areasOf = (keys: readonly CallKey[]): Map<string, number> => {
    const areas = new Map<string, number>()
    for (const key of keys) {
      const area = innermost(pathOf(key), sites)
      const seq = calls.get(key)?.outcome?.seq ?? Number.POSITIVE_INFINITY
      areas.set(area, Math.min(areas.get(area) ?? seq, seq))
    }
    return areas
  }
  /** Updates that one function made itself, after a position: sections inside it keep theirs. */
  const reopenUpdates = (area: string, from: number): void => {
    for (const [key, update] of updates) {
      // An update is known by its scope: one level more makes it a path inside.
      if (update.seq <= from || innermost(`${key.slice(0, key.lastIndexOf('#'))}/`, sites) !== area) continue
      drop(update.patch)
      updates.delete(key)
    }
  }
  /** Another attempt of a section uses anew what it uses in its own code. */
  const unbook = (scope: string): void => {
    for (const key of booked) if (isInside(pathOf(key), scope)) booked.delete(key)
  }
  /** Where the failure began: for a scope, with the first failure inside that failed it. */
  const failedAt = (key: CallKey): number => {
    const history = calls.get(key)
    return Math.min(history?.outcome?.seq ?? Number.POSITIVE_INFINITY, ...(history?.failed ?? []).map(failedAt))
  }

  /**
   * What came after a failure that is reopened may have come because of it: its results are kept for whoever asks for
   * them, but nobody has to; updates that the same function made after it run again.
   */
  const loosen = (keys: readonly CallKey[]): void => {
    const from = Math.min(...keys.map(failedAt))
    const areas = areasOf(keys)
    for (const key of keys) reopen(key)
    loosenSleeps(from, () => true)
    waitAnew(from, () => true)
    for (const [key, outcome] of outcomes) {
      if (outcome.seq <= from) continue
      const loose = { ...outcome, isLoose: true }
      outcomes.set(key, loose)
      ;(calls.get(key) as CallHistory).outcome = loose
    }
    for (const [area, since] of areas) if (isEntered(area)) reopenUpdates(area, since)
    beginAnewInside('')
  }

  /**
   * What a section did is taken back with it: its steps run again. Effects and children that were not undone themselves stand, as after a
   * rollback.
   */
  const stepsInside = (key: CallKey): CallKey[] => {
    const scope = calls.get(key)?.scope
    if (scope === undefined) return []
    const isOfIt = (path: string) => isInside(path, scope) || isInside(path, fallbackPath(scope))
    return [...outcomes.keys()].filter((inner) => inner.startsWith('step:') && isOfIt(pathOf(inner)))
  }

  /** What it did was taken back without a rollback: the next one is another, under another name. */
  const forgetName = (key: CallKey): void => {
    const history = calls.get(key)
    if (history === undefined || (key.startsWith('child:') && history.begun === undefined)) return
    delete history.begun
    delete history.key
    delete history.decided
    history.isDueAnew = true
    begunAnew.set(key, (begunAnew.get(key) ?? 0) + 1)
  }

  /** After a rollback the function continues from the last result that is left, with the state as it was edited since. */
  const showAllAtLast = (): void => {
    const last = [...outcomes.values()].at(-1)
    if (last === undefined) return
    const shown = { ...last, patchCount: patches.length }
    outcomes.set(last.key, shown)
    ;(calls.get(last.key) as CallHistory).outcome = shown
  }

  /**
   * A rollback to between the beginning of an effect and what became of it: what is known of its operation is told by the operation
   * itself, so the call begins anew. So does that of a step or child that was undone. One that has failed for good before that, and was
   * retried since, has its failure again.
   */
  const forgetBeginning = (record: LogRecord): void => {
    const kind = record.type === 'child_completed' ? 'child' : record.type === 'step_completed' ? 'step' : undefined
    const isUndone = kind !== undefined && data<{ undo?: unknown }>(record).undo !== undefined
    const forget = (key: CallKey) => void (outcomes.has(key) || calls.delete(key))
    if (isUndone && call(kind, record).scope === undefined) forget(callKey(kind, record.step ?? '', record.count))
    if (/^effect_(?!intended)/.test(record.type)) forget(callKey('effect', record.step ?? '', record.count))
  }

  /** One of the last to fail in an attempt of a scope that is over: nobody has heard of it. With the scope it is tried again. */
  const failedLate = (kind: CallKind, record: LogRecord): void => {
    const key = callKey(kind, record.step ?? '', record.count)
    const over = [...around(record.step ?? '', scopes)].filter(({ isRunning, next }) => !isRunning || next === 'fallback')
    if (over.some(isBetweenAttempts)) reopen(key)
    else for (const scope of over) scope.failed = [...(scope.failed ?? []), key]
  }

  const rolledBack = rolledBackStretches(records, runId, data)
  const isForgotten = ({ seq, type }: LogRecord): boolean => rolledBack.length > 0 && isIn(rolledBack, seq) && !kept.has(type)
  for (const record of records) {
    here = record.seq
    // The log's state may be the one that a rollback goes back to, where that was still to be rebuilt: the line's is another.
    const patch = record.patch ?? (record.type === 'run_rolled_back' && record.runId === runId ? codec.encode([]) : null)
    if (patch !== null) {
      const isForeign = record.runId !== runId || isForgotten(record)
      patches.push({ ...linePatch(record, isForeign, data, patches), patch })
    }
    if (record.runId !== runId) continue
    // What a child used is used, whatever was rolled back. One that was retried has used more, and says how much more.
    if (record.type === 'child_completed') {
      const { runId: child, usage: used } = data<{ runId: string; usage?: Partial<UsageTotal> }>(record)
      childEnds.set(record.seq, child)
      usage = addUsage(usage, used ?? {})
      if (used !== undefined) usageOfChildren.set(child, addUsage(usageOfChildren.get(child) ?? noUsage, used))
    }
    // What was undone stays undone, also where its result is not forgotten.
    if (record.type === 'step_undone') {
      const { of } = data<{ of: number }>(record)
      undone.add(of)
      const child = childEnds.get(of)
      if (child !== undefined) undoneChildren.add(child)
    }
    // What was written to streams is there, too.
    if (isForgotten(record) && record.type !== 'stream_opened') {
      forgetBeginning(record)
      continue
    }
    switch (record.type) {
      case 'run_started':
        number = record.count
        usage = addUsage(usage, data<{ usage?: Partial<UsageTotal> }>(record).usage ?? {})
        break
      case 'run_recovered': {
        const { epoch = 0, running = [] } = data<Partial<Recovery>>(record)
        recoveries.push({ epoch, running })
        for (const key of running) {
          const history = calls.get(key)
          if (history !== undefined) history.deaths++
        }
        break
      }
      case 'run_retried': {
        retriedAt = record.at
        renewedSeq = record.seq
        for (const stream of streams.values()) stream.isStale = true
        const isUndone = ({ outcome, decided }: CallHistory) => undone.has((outcome ?? decided)?.seq ?? 0)
        const undoneKeys = [...calls].filter(([, history]) => isUndone(history)).flatMap(([key]) => [key, ...stepsInside(key)])
        for (const key of new Set(undoneKeys)) forgetName(key)
        loosen([
          ...(data<{ reopened?: CallKey[] }>(record).reopened ?? []),
          // What was undone is to be done again, and the scopes around it entered again.
          ...undoneKeys.flatMap((key) => [key, ...around(pathOf(key), keysOfScopes)]),
        ])
        break
      }
      case 'run_resumed':
        if (isRolledBack) showAllAtLast()
        isRolledBack = false
        // Resumed by a person: the function may be called again.
        order = data<{ order?: Order }>(record).order ?? replayable(order)
        if (order === undefined) for (const [key, history] of calls) if (history.next === 'pause') reopen(key)
        break
      case 'run_paused':
      case 'undo_ordered':
        order = data<{ order?: Order }>(record).order ?? order
        break
      case 'run_rolled_back':
        isRolledBack = true
        renewedSeq = record.seq
        for (const stream of streams.values()) stream.isStale = true
        order = undefined
        break
      case 'run_failed':
        order = undefined
        // Its open children were cancelled. Should it be retried, others begin.
        if (data<{ isUndone?: boolean }>(record).isUndone === true)
          for (const [key, { outcome }] of calls) if (outcome === undefined && key.startsWith('child:')) forgetName(key)
        break
      case 'run_cancelled':
        order = undefined
        break
      case 'step_undone': {
        const { of } = data<{ of: number }>(record)
        // Its operation is free: should it be done again, it begins at the beginning.
        for (const history of calls.values()) if ((history.outcome ?? history.decided)?.seq === of) delete history.effect
        break
      }
      case 'state_updated': {
        const { error, rebuilt, shown } = data<{ error?: Error; rebuilt?: unknown; shown?: true }>(record)
        if (shown === true) settle('value', record)
        if (rebuilt !== undefined || shown === true) break
        updates.set(updateKey(record.step, record.count), {
          ...{ position: patches.length, patch: patchOf(record), seq: record.seq },
          ...(error !== undefined && { error }),
        })
        break
      }
      case 'value_recorded':
        if (record.step?.endsWith('checkpoint')) settle('value', record)
        else {
          const key = callKey('value', record.step ?? '', record.count)
          values.set(key, data<{ value: unknown }>(record).value)
          valuesAt.set(key, record.seq)
        }
        break
      case 'step_started': {
        const history = call('step', record)
        history.isRunning = true
        if (history.opened !== undefined) delete history.opened
        const { inputFingerprint, scope, hasUndo, key, isFirst } = data<StartData>(record)
        if (isFirst === true) history.begunFirstAt = record.seq
        if (inputFingerprint !== undefined) history.inputFingerprint = inputFingerprint
        if (hasUndo === true) history.hasUndo = true
        delete history.isDueAnew
        if (key !== undefined) history.key = key
        if (scope !== undefined) {
          scopes.set(scope, Object.assign(history, { scope }))
          sites.set(scope, history).set(fallbackPath(scope), history)
          keysOfScopes.set(scope, callKey('step', record.step ?? '', record.count))
          unbook(scope)
          history.started = { seq: record.seq, at: record.at, patchCount: patches.length }
        }
        break
      }
      case 'stream_opened': {
        const { stream } = data<{ stream: string }>(record)
        if (record.step === null) streams.set(stream, { isStale: false })
        else {
          const history = call('step', record)
          history.opened = [...(history.opened ?? []), { attempt: record.attempt, stream }]
        }
        break
      }
      case 'step_failed':
      case 'effect_failed': {
        const kind = record.type === 'step_failed' ? 'step' : 'effect'
        const { next, retryAt, counts, error, open, failed } = data<FailureData>(record)
        const history = call(kind, record)
        history.isRunning = false
        delete history.opened
        if (counts !== false) history.failures++
        if (error !== undefined) history.lastError = error
        delete history.next
        delete history.retryAt
        if (next === 'fallback' || next === 'pause') history.next = next
        // From here on it is the fallback that brings its worker down.
        if (next === 'fallback') history.deaths = 0
        if (retryAt !== undefined) history.retryAt = retryAt
        if (kind === 'effect') history.effect = open === true ? 'intended' : 'not_happened'
        if (next === 'throw') settle(kind, record, true)
        if (history.scope !== undefined) unbook(history.scope)
        if (failed !== undefined) history.failed = [...(history.failed ?? []), ...failed]
        if (next === 'retry' && history.scope !== undefined) {
          const { scope } = history
          reopenInside(
            scope,
            (history.failed ?? []).filter((key) => isInside(pathOf(key), scope)),
          )
          delete history.failed
        }
        if (next === 'throw') failedLate(kind, record)
        break
      }
      case 'step_completed':
      case 'step_skipped':
        settle('step', record)
        break
      case 'effect_intended': {
        const { key, hasUndo, undo, wasForgotten } = data<IntentData>(record)
        // Its operation says so to the call that gives its key. What came before it is done again, perhaps with other results, and so other keys.
        if (wasForgotten === true) break
        const history = call('effect', record)
        history.effect = 'intended'
        history.key = key
        delete history.isDueAnew
        delete history.decided
        if (hasUndo === true) history.hasUndo = true
        if (undo !== undefined) history.undo = undo
        break
      }
      case 'effect_unsure': {
        const history = call('effect', record)
        history.effect = 'unsure'
        history.key = data<{ key: string }>(record).key
        break
      }
      case 'effect_resolved': {
        const { happened, result, key } = data<{ happened: boolean; result?: unknown; key: string }>(record)
        const history = calls.get(callKey('effect', record.step ?? '', record.count))
        // About an effect of an earlier tape, or from before a rollback: this call has another key, or was never made.
        if (history?.key !== key) break
        history.effect = happened ? 'happened' : 'not_happened'
        history.resolution = result
        if (happened) history.decided = { seq: record.seq, payload: record.payload }
        break
      }
      case 'effect_completed': {
        settle('effect', record)
        const history = call('effect', record)
        history.key ??= data<{ key: string }>(record).key
        break
      }
      case 'effect_skipped':
        settle('effect', record)
        call('effect', record).key = data<{ key: string }>(record).key
        break
      case 'timer_set': {
        const { fireAt, ms, for: kind = 'timer' } = data<TimerData>(record)
        const history = call(kind, record)
        if (fireAt !== undefined) history.fireAt = fireAt
        if (kind === 'timer') setSleep(record, history, ms)
        break
      }
      case 'timer_fired': {
        const { for: kind = 'timer', error } = data<TimerData>(record)
        settle(kind, record, error !== undefined)
        if (error !== undefined) failedLate(kind, record)
        break
      }
      case 'wait_withdrawn':
        settle(data<TimerData>(record).for ?? 'timer', record, true)
        failedLate(data<TimerData>(record).for ?? 'timer', record)
        break
      case 'signal_received':
        settle('signal', record)
        break
      case 'question_asked': {
        const history = call('question', record)
        history.begun = { seq: record.seq, data: data(record) }
        break
      }
      case 'question_answered':
        settle('question', record)
        break
      case 'child_started': {
        const started = data<{ isDetached?: boolean }>(record)
        call('child', record).begun = { seq: record.seq, data: started }
        if (started.isDetached === true) settle('child', record)
        break
      }
      case 'child_completed': {
        const { error, endSeq } = data<{ error?: Error; endSeq?: number }>(record)
        settle('child', record, error !== undefined)
        if (endSeq !== undefined) call('child', record).childEndSeq = endSeq
        if (error !== undefined) failedLate('child', record)
        break
      }
      case 'usage_recorded': {
        const { child, ...used } = data<Partial<UsageTotal> & { child?: string }>(record)
        usage = addUsage(usage, used)
        if (child !== undefined) usageOfChildren.set(child, addUsage(usageOfChildren.get(child) ?? noUsage, used))
        // One of ctx.usage, which a replay comes by again; one of a step's body has an attempt.
        if (record.step !== null && record.attempt === 0) booked.add(callKey('value', record.step, record.count))
        break
      }
      case 'budget_raised':
        raised = { ...raised, ...data<{ budget: Budget }>(record).budget }
        break
      default:
        break
    }
  }
  return {
    outcomes: [...outcomes.values()].sort((a, b) => a.seq - b.seq),
    calls,
    values,
    valuesAt,
    patches,
    updates,
    streams,
    number,
    undone,
    undoneChildren,
    renewedSeq,
    recoveries,
    rollbacks: countRollbacks(records, runId, { data, callKey, counts: begunAnew }),
    rolledBack,
    usage,
    booked,
    usageOfChildren,
    raised,
    ...(retriedAt !== undefined && { retriedAt }),
    ...(order !== undefined && { order }),
  }
}

/** What a rollback does not make undone: what was paid, and which tape it is. */
const kept: ReadonlySet<EventType> = new Set(['usage_recorded', 'budget_raised', 'run_started'])

/** What effect_intended says. */
interface IntentData {
  readonly key: string
  readonly hasUndo?: boolean
  readonly undo?: string
  /** Written once more by a holder whose own the store had lost. */
  readonly wasForgotten?: true
}

/** What step_started says. */
interface StartData {
  readonly inputFingerprint?: string
  readonly scope?: string
  readonly hasUndo?: boolean
  readonly key?: string
  /** Of `ctx.begin`: it was recorded before the function got the step. */
  readonly isFirst?: boolean
}

function linePatch(
  record: LogRecord,
  isForeign: boolean,
  data: <T>(record: LogRecord) => T,
  before: readonly LinePatch[],
): Omit<LinePatch, 'patch'> {
  const { type, seq, step } = record
  const isMigration = type === 'state_migrated'
  const isRebuild = type === 'state_updated' && data<{ rebuilt?: unknown }>(record).rebuilt !== undefined
  const isRollback = type === 'run_rolled_back' && !isForeign
  const to = isRollback ? data<{ to: number }>(record).to : 0
  return {
    ...{ version: isMigration ? data<{ to: number }>(record).to : null, seq, step },
    isPassedBy: isForeign || isMigration || isRebuild || isRollback,
    ...(isRebuild && { isRebuild }),
    ...(record.runId === null && { isEdit: true as const }),
    ...(isRollback && { backTo: before.filter((patch) => patch.seq <= to).length }),
  }
}

/** What timer_set and timer_fired say. */
interface TimerData {
  readonly fireAt?: number
  /** A sleep's length; one until a date has none. */
  readonly ms?: number
  /** The kind of call that it limits; a sleep says nothing. */
  readonly for?: CallKind
  readonly error?: Error
}

/** What rollbacks have taken back: between the position that each went to and itself. */
export function rolledBackStretches(
  records: readonly LogRecord[],
  runId: string,
  data: <T>(record: LogRecord) => T,
): readonly Stretch[] {
  return records
    .filter((record) => record.type === 'run_rolled_back' && record.runId === runId)
    .map((record) => ({ from: data<{ to: number }>(record).to, to: record.seq }))
}

export function isIn(stretches: readonly Stretch[], seq: number): boolean {
  return stretches.some(({ from, to }) => seq > from && seq < to)
}

/** Where a rollback to a position ends: what was rolled back before is not there to go back to, so it is where that went. */
export function whereToRollBack(stretches: readonly Stretch[], to: number): number {
  return stretches.reduceRight((at, stretch) => (isIn([stretch], at) ? stretch.from : at), to)
}

/** What step_failed and effect_failed say. */
export interface FailureData {
  readonly error?: Error
  /** No further attempt follows by itself. */
  readonly final: boolean
  /** What follows. Only `throw` reaches the function, now and at every replay. */
  readonly next: 'retry' | 'fallback' | 'skip' | 'pause' | 'throw'
  readonly retryAt?: number
  /** False where the failure is no failed attempt: a look-up after a crash found that nothing had happened. */
  readonly counts?: boolean
  /** The operation stays open: the same key will be sent again. */
  readonly open?: boolean
  /** Recorded scopes: the failures that failed it. */
  readonly failed?: readonly CallKey[]
}

/**
 * Calls that had begun and not ended where the tape stops: what was running when the worker died. A scope is among them only
 * where it was its own function that ran.
 */
export function runningCalls(tape: Tape): CallKey[] {
  const running: [CallKey, CallHistory][] = []
  tape.calls.forEach((history, key) => {
    if (history.isRunning && history.outcome === undefined) running.push([key, history])
  })
  const isBusyInside = ({ scope }: CallHistory) =>
    scope !== undefined && running.some(([key]) => isInside(pathOf(key), scope) || isInside(pathOf(key), fallbackPath(scope)))
  return running.filter(([, history]) => !isBusyInside(history)).map(([key]) => key)
}

export function hasRunningScope(tape: Tape): boolean {
  for (const { scope, isRunning } of tape.calls.values()) if (scope !== undefined && isRunning) return true
  return false
}

/** A takeover was no death: the holder lived on. */
export function forgiveDeaths(tape: Tape, { running }: Recovery): void {
  for (const key of running) {
    const history = tape.calls.get(key)
    if (history !== undefined && history.deaths > 0) history.deaths--
  }
}

export function countDeath(tape: Tape, key: CallKey): void {
  const history = tape.calls.get(key)
  if (history !== undefined) history.deaths++
}

function isBetweenAttempts(scope: CallHistory): boolean {
  return !scope.isRunning && scope.outcome === undefined && scope.next === undefined
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
