import type { EventType } from 'holdfast'
import type { Change } from '../../../src/store/change.ts'
import type { StoreAct } from '../../../src/testing/faulty-store.ts'

/** Where a process is killed or stopped. All of these places are outside of Holdfast: its store, bodies, the provider. */
export type Fault =
  /** Around the n-th call of a method of the store, in this process. */
  | { readonly at: 'act'; readonly act: StoreAct; readonly nth: number; readonly when: 'before' | 'after' }
  /** Around the commit that writes such an event of that step; null: of the run itself. */
  | { readonly at: 'write'; readonly type: EventType; readonly step: string | null; readonly when: 'before' | 'after' }
  /** Inside the n-th body of that path, in this process. */
  | { readonly at: 'body'; readonly path: string; readonly nth?: number }
  /** At the provider: the call has arrived and was not acted on, or was acted on and not answered. */
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

/** Whether the fault belongs to this call of the store. */
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
