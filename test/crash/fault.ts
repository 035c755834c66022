import type { EventType } from 'holdfast'
import type { Change } from '../../src/store/change.ts'
import type { StoreAct } from '../../src/testing/faulty-store.ts'

/** Where a process is to be killed or stopped. All are seen from outside of Holdfast: its store, its bodies, the provider. */
export type Fault =
  /** Around the n-th call of an act of the store, in this life of the process. */
  | { readonly at: 'act'; readonly act: StoreAct; readonly nth: number; readonly when: 'before' | 'after' }
  /** Around the commit that writes such an event of that step; null: of the run. */
  | { readonly at: 'write'; readonly type: EventType; readonly step: string | null; readonly when: 'before' | 'after' }
  /** Inside the n-th body of that path, in this life. */
  | { readonly at: 'body'; readonly path: string; readonly nth?: number }
  /** At the provider: the call has arrived and not been acted on, or was acted on and not answered. */
  | { readonly at: 'call'; readonly name: string; readonly when: 'received' | 'acted' }
  /** Inside an effect's `run`, with the provider's answer in hand. */
  | { readonly at: 'answer'; readonly name: string }

export function describeFault(fault: Fault | null): string {
  switch (fault?.at) {
    case undefined:
      return 'undisturbed'
    case 'act':
      return `${fault.when} ${fault.act} ${fault.nth}`
    case 'write':
      return `${fault.when} ${fault.type}${fault.step === null ? '' : ` of ${fault.step}`} is written`
    case 'body':
      return `in the body of ${fault.path}${fault.nth === undefined || fault.nth === 1 ? '' : ` (${fault.nth})`}`
    case 'call':
      return `call of ${fault.name} ${fault.when}`
    case 'answer':
      return `answer to ${fault.name} in hand`
  }
}

/** Whether a call of the store is where the fault is to be. */
export function isFaultAt(
  fault: Fault | null,
  call: { act: StoreAct; nth: number; args: readonly unknown[]; when: 'before' | 'after' },
): boolean {
  const { act, nth, args, when } = call
  if (fault?.at === 'act') return fault.act === act && fault.nth === nth && fault.when === when
  if (fault?.at !== 'write' || act !== 'commit' || fault.when !== when) return false
  const changes = args[0] as readonly Change[]
  return changes.some(({ events }) => events.some(({ type, step }) => type === fault.type && step === fault.step))
}
