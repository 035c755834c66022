import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import pg from 'pg'
import { bundleProgram } from '../crash/bed/program-bundle.ts'
import { readStore } from '../crash/bed/store-dump.ts'
import { patience } from '../patience.ts'
import { startRelay } from '../servers/relay.ts'
import type { ForgetfulServer } from './forgetful-servers.ts'
import type { ForgetfulStore, KeptDump, RunningWorker } from './forgetful-store.ts'
import type { StoreAt, Target } from './target.ts'
import type { WorkerOrder } from './worker.ts'

export interface ServerOptions {
  readonly target: Target
  /** The folder of the checkout that the target is of, if it is another one. */
  readonly on: string | undefined
  readonly workerCount: number
}

/** A real server, with a relay for the client and for each worker, and workers in processes of their own. */
export async function prepareServer(server: ForgetfulServer, options: ServerOptions): Promise<ForgetfulStore> {
  const { target, on, workerCount } = options
  const { kind, durability } = server
  const hasSql = kind === 'postgres'
  const openDirectly = () => target.openStore({ kind, durability, url: server.url() })
  const store = await openDirectly()
  await store.migrate()
  await store.close()
  if (hasSql) await ask(server.url(), 'CREATE TABLE public.orders (run text, round integer, token text, n serial)')
  const relays = await Promise.all(Array.from({ length: workerCount + 1 }, () => startRelay(server.url())))
  const source = join(import.meta.dirname, 'worker-process.ts')
  const program = on === undefined ? bundleProgram(source) : Promise.resolve(source)
  const wayOf = (nth: number): StoreAt => ({ kind, durability, url: (relays[nth] as (typeof relays)[number]).url })

  return {
    hasSql,
    isRelaxed: durability === 'relaxed',
    openStore: () => target.openStore(wayOf(0)),
    async startWorker(order) {
      const worker = new WorkerProcess(await program, order, wayOf(order.number), on)
      await worker.ready
      return worker
    },
    keep: () => server.keep(),
    async forget() {
      for (const relay of relays) relay.refuse(true)
      let isHeld = false
      await server.forget(() => {
        isHeld = true
        for (const relay of relays) relay.hold(true)
      })
      for (const relay of relays) {
        if (!isHeld) relay.cut()
        relay.leadTo(server.url())
      }
    },
    admit(nth) {
      relays[nth]?.refuse(false)
      relays[nth]?.hold(false)
    },
    async read() {
      const own = await openDirectly()
      try {
        await own.migrate()
        const orders = hasSql ? await ask(server.url(), 'SELECT run, round, token FROM public.orders ORDER BY n') : []
        return { ...(await readStore(own)), orders: orders as KeptDump['orders'] }
      } finally {
        await own.close()
      }
    },
    async stop() {
      for (const relay of relays) await relay.stop()
      await server.stop()
    },
  }
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(sql)).rows
  } finally {
    await client.end()
  }
}

class WorkerProcess implements RunningWorker {
  readonly ready: Promise<void>
  readonly #child: ChildProcess
  readonly #ended: Promise<unknown>
  #errors = ''

  constructor(program: string, order: WorkerOrder, at: StoreAt, on: string | undefined) {
    const args = [JSON.stringify(order), JSON.stringify(at), ...(on === undefined ? [] : [on])]
    this.#child = spawn(process.execPath, ['--conditions=holdfast-source', program, ...args], {
      env: { ...process.env, NODE_OPTIONS: '' },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    this.#child.stdin?.on('error', () => {})
    this.#child.stderr?.on('data', (chunk) => {
      this.#errors = `${this.#errors}${chunk}`.slice(-4_000)
    })
    this.#ended = once(this.#child, 'close')
    const early = this.#ended.then(() => {
      throw new Error(`a worker ended before it began: ${this.#errors}`)
    })
    early.catch(() => {})
    this.ready = Promise.race([once(this.#child.stdout as NodeJS.ReadableStream, 'data').then(() => {}), early])
  }

  async close(): Promise<string[]> {
    this.#child.stdin?.end()
    const isOver = await Promise.race([this.#ended.then(() => true), wait(patience(30_000), false, { ref: false })])
    if (!isOver) return [`a worker did not close: ${this.#errors}`]
    const { exitCode, signalCode } = this.#child
    return exitCode === 0 ? [] : [`a worker ended with ${exitCode ?? signalCode}: ${this.#errors}`]
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }
}
