import type { Payload } from '../../model/payload.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import type { Call, Calls, ScopeAttempt } from '../calls/calls.ts'
import { updateKey } from '../replay/call-key.ts'
import type { Playback } from '../replay/playback.ts'
import type { StateTimeline, StateView } from '../state/state-timeline.ts'
import type { HeldRun } from './held-run.ts'
import type { Phase } from './phase.ts'
import type { RunJournal } from './run-journal.ts'

/** Under which edits by hand that were shown are counted. */
const edits = '[edits]'

/** The state as the functions of a run see and change it: ctx.state, ctx.update, migrations, and edits by hand. */
export class StateUpdates {
  readonly #run: UpdatedRun
  readonly timeline: StateTimeline
  /** How often ctx.update was called, by scope. */
  #counts: Map<string | null, number> | undefined

  constructor(run: UpdatedRun, timeline: StateTimeline) {
    this.#run = run
    this.timeline = timeline
  }

  /** The state as the function sees it that asks: the run's, or that of a section's attempt. */
  get view(): StateView {
    return this.viewOf(this.#run.calls.attempt)
  }

  viewOf(attempt: ScopeAttempt | undefined): StateView {
    return attempt?.view ?? this.timeline.view
  }

  /** The n-th ctx.update: moves to where it stood, or runs the recipe and defers its patch to the next commit. */
  update(recipe: (draft: never) => unknown): void {
    const { calls, phase, admission, playback, run } = this.#run
    const { attempt } = calls
    const isAwaited = phase.isCancelled && !phase.hasEnded && attempt?.isAwaited === true
    if (!isAwaited && admission.comesToNothing('update')) {
      attempt?.miss()
      return
    }
    const { within } = isAwaited ? calls.enter('value', 'update', true) : admission.enter('value', 'update', true)
    // What belongs to an attempt of a scope that is over changes nothing any more.
    if (within?.isOver && !isAwaited && !within.isRecordedAnyway) {
      within.miss()
      return
    }
    const scope = calls.place
    const count = this.#next(scope)
    const recorded = run.tape.updates.get(updateKey(scope, count))
    const view = this.viewOf(within)
    if (recorded === undefined) {
      this.#change(recipe, view, { scope, count })
      return
    }
    view.advance(recorded.position)
    if (playback.isLive && within === undefined) this.showEdits()
    if (recorded.error !== undefined) throw reviveError(recorded.error)
  }

  #change(
    recipe: (draft: never) => unknown,
    view: StateView,
    place: { readonly scope: string | null; readonly count: number },
  ): void {
    const { phase, journal, run } = this.#run
    // It will never be written: it must not reach the state that is handed to the next run either.
    if (phase.hasEnded) return
    this.migrate()
    let patch: Payload | null = null
    try {
      patch = this.timeline.stage([recipe])
    } catch (error) {
      const event = journal.event('state_updated', null, { ...place, data: { error: toStorableError(error) } })
      journal.defer(event)
      view.advance(this.timeline.mark)
      // As a replay will throw it: its class is not stored.
      throw reviveError((run.codec.decode(event.payload as Payload) as { error: Error }).error)
    }
    view.advance(this.timeline.mark)
    // One that changed nothing is recorded too: a replay must not run its recipe on a state that came later.
    journal.defer(journal.event('state_updated', null, { ...place, patch }), patch !== null)
  }

  /** Edits by hand that come next. Where they were shown is recorded, so that a replay shows them there. */
  showEdits(): void {
    if (!this.timeline.showEdits()) return
    const { journal } = this.#run
    journal.defer(journal.event('state_updated', null, { scope: edits, count: this.#next(edits), data: { shown: true } }))
  }

  /** A replay comes to where edits by hand were shown. */
  showEditsAgain(patchCount: number): void {
    this.#next(edits)
    this.timeline.view.advance(patchCount)
  }

  /** Brings an older state to the definition's version. */
  migrate(): void {
    const migrated = this.timeline.migrate()
    if (migrated === null) return
    const { patch, from, to } = migrated
    const { journal } = this.#run
    journal.setStateVersion(to)
    journal.defer(journal.event('state_migrated', null, { data: { from, to }, patch }), true)
  }

  #next(scope: string | null): number {
    this.#counts ??= new Map()
    const count = (this.#counts.get(scope) ?? 0) + 1
    this.#counts.set(scope, count)
    return count
  }
}

interface UpdatedRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly calls: Calls
  readonly playback: Playback
  readonly journal: RunJournal
  readonly admission: { comesToNothing(name: string): boolean; enter(kind: Call['kind'], name: string, isOurName: boolean): Call }
}
