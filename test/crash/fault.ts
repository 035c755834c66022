import type { StoreAct } from '../../src/testing/faulty-store.ts'

/** Where a process is to be killed or stopped. All are seen from outside of Holdfast: its store, its bodies, the provider. */
export type Fault =
  /** Around the n-th call of an act of the store, in this life of the process. */
  | { readonly at: 'act'; readonly act: StoreAct; readonly nth: number; readonly when: 'before' | 'after' }
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
    case 'body':
      return `in the body of ${fault.path}${fault.nth === undefined || fault.nth === 1 ? '' : ` (${fault.nth})`}`
    case 'call':
      return `call of ${fault.name} ${fault.when}`
    case 'answer':
      return `answer to ${fault.name} in hand`
  }
}
