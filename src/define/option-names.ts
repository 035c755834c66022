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
import type { PlanStepOptions } from './plan.ts'
import type { WorkflowOptions } from './workflow.ts'

/** Options of the calls on ctx and of what users define, by name. */
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

export const mapOptionNames: OptionNames<MapOptions<unknown>> = { ...stepOptionNames, concurrency: true }

export const sectionOptionNames: OptionNames<SectionOptions<unknown>> = {
  retry: true,
  timeoutMs: true,
  fallback: true,
  onFailure: true,
  undo: true,
}

export const planStepOptionNames: OptionNames<PlanStepOptions<unknown>> = {
  ...sectionOptionNames,
  weight: true,
  canFail: true,
  impact: true,
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

export const workflowOptionNames: OptionNames<WorkflowOptions<unknown, unknown, unknown>> = {
  name: true,
  version: true,
  input: true,
  output: true,
  state: true,
  queue: true,
  priority: true,
  timeoutMs: true,
  retry: true,
  budget: true,
  undoOnFailure: true,
  undos: true,
}
