import type { OptionNames } from '../model/known-options.ts'
import type {
  AskOptions,
  ChildOptions,
  EffectOptions,
  MapOptions,
  SectionOptions,
  StepOptions,
  WaitForOptions,
  Withdrawable,
} from './context.ts'

/** Options of the calls on ctx, by name. */
export const stepOptionNames: OptionNames<StepOptions<unknown>> = {
  retry: true,
  timeoutMs: true,
  fallback: true,
  onFailure: true,
  undo: true,
  input: true,
  kind: true,
  schema: true,
  checkpoint: true,
}

export const mapOptionNames: OptionNames<MapOptions<unknown>> = { ...stepOptionNames, concurrency: true, summary: true }

export const sectionOptionNames: OptionNames<SectionOptions<unknown>> = {
  retry: true,
  timeoutMs: true,
  fallback: true,
  onFailure: true,
  undo: true,
}

export const effectOptionNames: OptionNames<EffectOptions<unknown>> = {
  key: true,
  run: true,
  check: true,
  idempotent: true,
  retry: true,
  timeoutMs: true,
  undo: true,
}

export const sleepOptionNames: OptionNames<Withdrawable> = { signal: true }

export const waitForOptionNames: OptionNames<WaitForOptions<unknown>> = { timeoutMs: true, schema: true, signal: true }

export const askOptionNames: OptionNames<AskOptions<unknown>> = {
  signal: true,
  question: true,
  schema: true,
  timeoutMs: true,
  default: true,
  to: true,
}

export const callOptionNames: OptionNames<ChildOptions> = {
  undo: true,
  id: true,
  threadId: true,
  queue: true,
  priority: true,
  budget: true,
  detached: true,
  version: true,
  scheduledAt: 'internal',
  unchecked: 'internal',
}
