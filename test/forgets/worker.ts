import type { Store } from 'holdfast'
import type { Change, Committed } from '../../src/store/change.ts'
import type { Claim } from '../../src/store/store.ts'
import { ProviderClient } from '../crash/bed/provider.ts'
import { withRetries } from '../crash/bed/run-process.ts'
import { Journal } from './journal.ts'
import type { StoreAt, Target } from './target.ts'
import { workflowsOf } from './workflows.ts'

/** What a worker is told. */
export interface WorkerOrder {
  readonly number: number
  readonly journal: string
  /** While there is this file, effects take their time. */
  readonly slowEffects: string
  readonly provider: { readonly port: number; readonly account: string }
  readonly leaseMs: number
  readonly hasSql: boolean
}

/** A worker that is at work while its store forgets. Returns what closes it. */
export async function work(target: Target, order: WorkerOrder, store: Store): Promise<() => Promise<void>> {
  const journal = new Journal(order.journal, order.number)
  const provider = new ProviderClient({ ...order.provider, processNumber: order.number })
  const workflows = workflowsOf(target, { ...order, journal, provider })
  const said = (message: string, data?: unknown) =>
    journal.write({ of: 'said', message: `${message} ${JSON.stringify(data, errorsAsText) ?? ''}` })
  const hf = await withRetries(() =>
    target.holdfast.open(noting(target, store, journal), {
      workflows,
      logger: { debug: () => {}, info: () => {}, warn: said, error: said },
      worker: { leaseMs: order.leaseMs, pollMs: 50, concurrency: 200, closeGraceMs: 2_000 },
    }),
  )
  return async () => {
    await hf.close()
    journal.close()
  }
}

/** Opens the store by its address, as a process of its own does. */
export async function workAt(target: Target, order: WorkerOrder, at: StoreAt): Promise<() => Promise<void>> {
  const store = await withRetries(() => target.openStore(at))
  const close = await work(target, order, store)
  return async () => {
    await close()
    await store.close()
  }
}

/** The same store; who holds which run is noted as its answers say. */
function noting({ wrapStore }: Target, store: Store, journal: Journal): Store {
  return wrapStore(store, {
    after(act, _nth, args, answer) {
      if (act === 'claim') {
        const claims = answer as readonly Claim[]
        for (const { run, leaseId } of claims) journal.write({ of: 'claimed', run: run.id, epoch: run.epoch, leaseId })
      }
      if (act !== 'commit') return
      for (const [index, { guard, run, runId }] of (args[0] as readonly Change[]).entries()) {
        const outcome = (answer as readonly Committed[])[index] as Committed
        if (guard.kind !== 'lease' || runId === null) continue
        const held = { run: runId, epoch: guard.epoch }
        if (!outcome.ok && outcome.refusal === 'lease_lost') journal.write({ of: 'fenced', ...held })
        else if (outcome.ok && run?.status !== undefined && run.status !== 'running') journal.write({ of: 'released', ...held })
      }
    },
  })
}

function errorsAsText(_: string, value: unknown): unknown {
  return value instanceof Error ? `${(value as { code?: string }).code ?? value.name}: ${value.message}` : value
}
