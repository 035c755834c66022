import { isTerminal, type PauseReason, type RunStatus } from '../../model/run.ts'
import type { Order } from '../replay/tape.ts'

/**
 * The life of one execution, as one value. Every transition is a method here; what it sets off is done by the function named beside it.
 *
 *   replaying ─▶ live ─▶ stopping ─▶ unwinding ─▶ ended
 *        │         └───────────┴──────────▲         ▲
 *        └── a stop or an order is kept ──┘         │     lost: from anywhere before ended
 *                                 every phase ──────┘
 *
 * | from | to | by | which |
 * | --- | --- | --- | --- |
 * | replaying | live, stopping | `wentLive` | `Execution.#goLive`: the tape is consumed; an order that was kept is run |
 * | replaying | replaying with a stop or an order | `request`, `keep` | requests that arrive before the tape is consumed |
 * | live, stopping | stopping | `request` | `Stopping.#request`: pause, release, reload, rollback; what ranks lower than the stop in effect is refused |
 * | live, stopping | stopping (cancel) | `cancel` | `Stopping.runOrder`: every call of the function throws |
 * | stopping (pause) | stopping (release) | `takeBackPause` | `InboxCommands`: the run was resumed before it came to its pause |
 * | replaying, live, stopping | unwinding | `unwind` | `Stopping.carryOut`: what the run did is being undone, or its failure written |
 * | unwinding | unwinding, overruled | `overrule` | `Stopping.order`: an order that ranks higher |
 * | any but lost | ended | `end` | `Ending`: the commit that gives the lease up is on its way, or was answered; a write failed |
 * | any but ended | lost | `lose` | `Ending.lose`: the lease is gone |
 */
type State =
  | { readonly kind: 'replaying'; readonly stop: Stop | null; readonly order: Order | null }
  | { readonly kind: 'live' }
  | { readonly kind: 'stopping'; readonly stop: Stop }
  | { readonly kind: 'unwinding'; readonly order: Order; readonly overruledBy: Order | null }
  | {
      readonly kind: 'ended'
      /** Undefined while it is not known yet: a write failed, or the next tape is being started. */
      readonly as: EndKind | undefined
      /** It ended by being persisted as waiting: its function may turn out to be at work. */
      readonly isSuspended: boolean
      readonly isCancelled: boolean
    }
  | { readonly kind: 'lost' }

/** What an execution was asked to stop for. */
export type Stop =
  | { readonly kind: 'pause'; readonly reason: PauseReason; readonly data: Readonly<Record<string, unknown>> }
  | { readonly kind: 'release' }
  | { readonly kind: 'reload' }
  | { readonly kind: Order['kind']; readonly order: Order }

/** As what an execution ended: with this status of its run, or without its end. */
export type EndKind = RunStatus | 'released' | 'lost' | 'reload' | 'continued'

// One object for all executions: hundreds of runs are held in parallel.
const replaying: State = { kind: 'replaying', stop: null, order: null }
const live: State = { kind: 'live' }
const lost: State = { kind: 'lost' }

export class Phase {
  #state: State = replaying

  /** New work may start: the tape is consumed, and nothing asked the run to stop. */
  get isOpen(): boolean {
    return this.#state === live
  }

  get hasEnded(): boolean {
    return this.#state.kind === 'ended' || this.#state === lost
  }

  get isLost(): boolean {
    return this.#state === lost
  }

  /** Every call on ctx throws; what is under way still ends. */
  get isCancelled(): boolean {
    const state = this.#state
    if (state.kind === 'ended') return state.isCancelled
    return state.kind === 'stopping' ? state.stop.kind === 'cancel' : state.kind === 'unwinding' && state.order.kind === 'cancel'
  }

  /** The run was cancelled or its lease lost: every later call throws (E4). */
  get isTakenAway(): boolean {
    return this.#state !== live && (this.#state === lost || this.isCancelled)
  }

  /** The run continues without this execution: it waits, was paused or handed over. Its calls do not return (E4). */
  get isDetached(): boolean {
    return this.#state.kind === 'ended' && !this.#state.isCancelled
  }

  /** It was persisted as waiting. */
  get isSuspended(): boolean {
    return this.#state.kind === 'ended' && this.#state.isSuspended
  }

  /** The run, or its tape, has come to its end here: what is called on its ctx comes too late, and is told so. */
  get isOver(): boolean {
    const as = this.endedAs
    return as !== undefined && (as === 'continued' || isTerminal(as as RunStatus))
  }

  get endedAs(): EndKind | undefined {
    return this.#state.kind === 'ended' ? this.#state.as : this.#state === lost ? 'lost' : undefined
  }

  get isUnwinding(): boolean {
    return this.#state.kind === 'unwinding'
  }

  /** The signal of the run is aborted. */
  get isAborted(): boolean {
    const state = this.#state
    if (state.kind === 'ended') return !state.isSuspended || state.isCancelled
    return state === lost || this.isCancelled || (state.kind === 'unwinding' && state.order.kind === 'fail')
  }

  /** It was asked to stop, is being undone, or has ended. */
  get isStopping(): boolean {
    return this.#state !== live && !(this.#state.kind === 'replaying' && this.#state.stop === null)
  }

  /** What it was asked to stop for, before its end. */
  get stop(): Stop | null {
    const state = this.#state
    if (state.kind === 'replaying' || state.kind === 'stopping') return state.stop
    return state.kind === 'unwinding' ? stopFor(state.order) : null
  }

  /** What the run was told to do instead of continuing, before its end. */
  get order(): Order | null {
    const state = this.#state
    if (state.kind === 'replaying' || state.kind === 'unwinding') return state.order
    return state.kind === 'stopping' && 'order' in state.stop ? state.stop.order : null
  }

  /** The order that outranks the one being carried out. */
  get overruledBy(): Order | null {
    return this.#state.kind === 'unwinding' ? this.#state.overruledBy : null
  }

  /** Says whether the stop counts: one that ranks higher may be in effect. */
  request(stop: Stop): boolean {
    const state = this.#state
    if (state.kind === 'unwinding' || this.hasEnded) return false
    const current = this.stop
    if (current !== null) {
      if (current.kind === 'cancel' || (current.kind === 'rollback' && stop.kind !== 'rollback')) return false
      if (current.kind !== 'reload' && stop.kind === 'release') return false
    }
    this.#state = state.kind === 'replaying' ? { ...state, stop } : { kind: 'stopping', stop }
    return true
  }

  /** The run was resumed before it came to its pause: it is handed back instead, and continues at once. */
  takeBackPause(): void {
    const state = this.#state
    if (state.kind !== 'replaying' && state.kind !== 'stopping') return
    const { stop } = state
    if (stop?.kind !== 'pause' || (stop.reason !== 'asked' && stop.reason !== 'budget')) return
    this.#state = { ...state, stop: { kind: 'release' } }
  }

  /** Keeps an order until the tape is consumed. False: it is, and the order can be run now. */
  keep(order: Order): boolean {
    if (this.#state.kind !== 'replaying') return false
    this.#state = { ...this.#state, order }
    return true
  }

  /** The tape is consumed. Answers with the order that was kept. */
  wentLive(): Order | null {
    const state = this.#state
    if (state.kind !== 'replaying') return this.order
    this.#state = state.stop === null ? live : { kind: 'stopping', stop: state.stop }
    return state.order
  }

  cancel(order: Order): void {
    const { kind } = this.#state
    if (kind === 'live' || kind === 'stopping') this.#state = { kind: 'stopping', stop: stopFor(order) }
  }

  /** False: an order is being carried out already, or the execution has ended. */
  unwind(order: Order): boolean {
    if (this.#state.kind === 'unwinding' || this.hasEnded) return false
    this.#state = { kind: 'unwinding', order, overruledBy: null }
    return true
  }

  overrule(by: Order): void {
    if (this.#state.kind === 'unwinding') this.#state = { ...this.#state, overruledBy: by }
  }

  /** Once more when it is known as what it ended. */
  end(as: EndKind | undefined, { isSuspended = this.isSuspended } = {}): void {
    if (this.#state !== lost) this.#state = { kind: 'ended', as, isSuspended, isCancelled: this.isCancelled }
  }

  /** False: it has ended already. */
  lose(): boolean {
    if (this.hasEnded) return false
    this.#state = lost
    return true
  }
}

export function stopFor(order: Order): Stop {
  return { kind: order.kind, order }
}
