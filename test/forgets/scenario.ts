import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { createRandom } from '../../src/testing/random.ts'
import { Provider } from '../crash/bed/provider.ts'
import { until } from '../crash/bed/worker-process.ts'
import { patience } from '../patience.ts'
import { Client } from './client.ts'
import { prepareMemory } from './forgetful-memory.ts'
import { forgetfulServers } from './forgetful-servers.ts'
import type { ForgetfulStore, RunningWorker } from './forgetful-store.ts'
import { Journal, readJournal } from './journal.ts'
import { type Evidence, judge, type Verdict } from './judge.ts'
import { prepareServer } from './store-on-forgetful-server.ts'
import { loadTarget, type Target } from './target.ts'

const memoryScenario = 'memory, image restored'

export type ScenarioName = keyof typeof forgetfulServers | typeof memoryScenario

/** Each begins with the name of its store. */
export const scenarioNames = [memoryScenario, ...Object.keys(forgetfulServers)] as readonly ScenarioName[]

export interface ScenarioOptions {
  readonly seed: number
  /** The folder of another checkout, to try its Holdfast. */
  readonly on?: string
  /** Less work, for the short form. */
  readonly isShort?: boolean
}

const workerCount = 2

/** How many of each there are. */
const load = { early: 10, agents: 16, errands: 8, lost: 40, late: 6, strolls: 10, fresh: 20, next: 6 }
const shortLoad: typeof load = { early: 3, agents: 6, errands: 3, lost: 10, late: 2, strolls: 4, fresh: 5, next: 2 }

/**
 * Workers and a client use a store that loses its last writes and then accepts them again, in random order. Ends when every run has, and
 * returns what was wrong. A scenario in which nothing was lost proves nothing and is repeated.
 */
export async function runScenario(name: ScenarioName, options: ScenarioOptions): Promise<Verdict> {
  for (let attempt = 0; attempt < 10; attempt++) {
    const verdict = await runOnce(name, { ...options, seed: options.seed + attempt * 7_919 })
    if (verdict.figures.lostResults > 0) return verdict
  }
  throw new Error(`${name}: nothing was lost in ten attempts from seed ${options.seed} on`)
}

async function runOnce(name: ScenarioName, { seed, on, isShort = false }: ScenarioOptions): Promise<Verdict> {
  const random = createRandom(seed)
  const counts = isShort ? shortLoad : load
  const target = await loadTarget(on)
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-forgets-'))
  const file = join(folder, 'journal')
  const journal = new Journal(file, 0)
  const provider = await Provider.start()
  const account = provider.open(name)
  account.onCall = (call, when) => {
    const { run } = call.body as { run: string }
    if (when === 'received') journal.write({ of: 'sent', run, name: call.name, key: call.key })
    return false
  }
  const forgetful = await prepareStore(name, target, on)
  const { hasSql } = forgetful
  const store = await forgetful.openStore()
  const workers: RunningWorker[] = []
  const client = await Client.open(target, store, { journal, account, limitMs: patience(150_000) })
  try {
    const order = {
      ...{ journal: file, slowEffects: join(folder, 'slow-effects'), leaseMs: patience(isShort ? 4_000 : 15_000), hasSql },
      provider: { port: provider.port, account: name },
    }
    const numbers = Array.from({ length: workerCount }, (_, index) => index + 1)
    workers.push(...(await Promise.all(numbers.map((number) => forgetful.startWorker({ ...order, number })))))
    client.wantTrifles(idsOf('early', counts.early))
    let isGone = false
    const lanes = idsOf('errand', counts.errands).map(async (lane) => {
      for (let n = 1; !isGone; n++) await client.want('errand', `${lane}-${n}`, random)
    })
    for (const id of idsOf('agent', counts.agents)) {
      void client.want('agent', id, random)
      await wait(random.integer(10, 60))
    }
    await until(() => countAcks(file) > counts.agents * random.integer(3, 9), 'runs are in progress')
    await forgetful.keep()
    client.wantTrifles(idsOf('lost', counts.lost))
    for (const id of idsOf('late', counts.late)) void client.want('agent', id, random)
    await wait(random.integer(200, 900))
    if (forgetful.isRelaxed) {
      // Intents of effects are always flushed, with everything before them. While effects are slow, results can be lost.
      writeFileSync(order.slowEffects, '')
      await wait(patience(400))
      for (const id of idsOf('stroll', counts.strolls)) void client.want('stroll', id, random)
      await until(() => countAcks(file, 'stroll') > counts.strolls, 'strolls are in progress')
      await forgetful.keep()
      const flushed = countAcks(file, 'stroll')
      await until(() => countAcks(file, 'stroll') > flushed + counts.strolls, 'something can be lost')
    }

    isGone = true
    journal.write({ of: 'moment', what: 'gone' })
    await forgetful.forget()
    const kept = await forgetful.read()
    journal.write({ of: 'moment', what: 'back' })
    rmSync(order.slowEffects, { force: true })
    // The first ones get numbers that others believe to be theirs.
    client.wantTrifles(idsOf('new', counts.fresh))
    for (const id of idsOf('next', counts.next)) void client.want('agent', id, random)
    for (const nth of random.chance(0.5) ? [0, ...numbers] : [...numbers, 0]) {
      forgetful.admit(nth)
      await wait(random.integer(0, 400))
    }
    await Promise.all(lanes)
    const runs = await client.outcomes()
    const ends = await Promise.all(workers.map((worker) => worker.close()))
    const evidence: Evidence = { runs, kept, final: await forgetful.read(), entries: readJournal(file), account, hasSql }
    return judge(evidence, [...ends.flat(), ...client.stops])
  } finally {
    for (const worker of workers) worker.kill()
    await client.close()
    await store.close()
    await forgetful.stop()
    provider.close()
    journal.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function prepareStore(name: ScenarioName, target: Target, on: string | undefined): Promise<ForgetfulStore> {
  if (name === memoryScenario) return prepareMemory(target, workerCount)
  return prepareServer(await forgetfulServers[name](), { target, on, workerCount })
}

function idsOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${name}-${index + 1}`)
}

function countAcks(file: string, run = ''): number {
  return readJournal(file).filter((entry) => entry.of === 'ack' && entry.run.startsWith(run)).length
}
