// A process of the tests of the Postgres store. The first argument says what it does, the second is the URL.

import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { claimRequest, creating, stepping } from './sqlite-scene.ts'

const [act, url] = process.argv.slice(2)

/** Opens a store at the same moment as others, sets it up and writes into it. */
async function boot(): Promise<void> {
  const store = await openPostgresStore({ url: url as string, durability: 'full', poolSize: { min: 0, max: 2 } })
  await store.migrate()
  const [answer] = await store.commit([creating(`run-of-${process.pid}`)])
  await store.close()
  console.log(answer?.ok === true ? 'ok' : 'refused')
}

/** Begins a transaction, tells so, and waits in it to be stopped. Once it goes on it says what became of it. */
async function hang(): Promise<void> {
  const store = await openPostgresStore({ url: url as string, durability: 'full' })
  await store.migrate()
  const [claim] = await store.claim(claimRequest({ leaseMs: 1_000 }))
  if (claim === undefined) throw new Error('nothing to claim')
  const { owner, id: runId, threadId, epoch } = claim.run
  const guarded = { owner, runId, threadId, epoch, leaseId: claim.leaseId, timeoutMs: 1_000 }
  try {
    const answer = await store.transact?.(guarded, async (tx) => {
      await tx.query('UPDATE accounts SET balance = balance + 1')
      console.log('in the body')
      // Longer than the test takes to stop this process.
      await new Promise((resolve) => setTimeout(resolve, 700))
      return stepping(claim)
    })
    console.log(answer?.ok === true ? 'ok' : `refused ${answer?.refusal}`)
  } catch (error) {
    console.log(`failed ${String((error as { code?: unknown }).code)}`)
  }
  await store.close()
}

await (act === 'boot' ? boot() : hang())
