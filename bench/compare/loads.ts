import { setTimeout as sleep } from 'node:timers/promises'
import type * as holdfast from 'holdfast'
import type { RunHandle } from 'holdfast'
import { readServerUsage, type ServerUsage } from './server-usage.ts'

/** What one process measured: processor time of the process, time by the clock, and what a Redis server spent. */
export interface Measured {
  readonly operations: number
  readonly cpuUs: number
  readonly wallMs: number
  readonly server?: ServerUsage
}

/** Work that both versions can do. `Api` is `holdfast` as one of them has it. */
export interface Load {
  readonly name: string
  /** What is counted. */
  readonly unit: string
  /** Done before, in a process of its own. It may kill itself. */
  readonly leave?: (api: Api, url: string, size: number) => Promise<void>
  readonly measure: (api: Api, url: string, size: number) => Promise<Measured>
  /** How many operations, of the kind that `unit` says, at scale 1. */
  readonly size: number
  /** Leases of the process before have to run out where the store does not see its death. */
  readonly leavesLeases?: true
}

type Api = typeof holdfast

const hourMs = 3_600_000
const stepsARun = 10
const leaseMs = 4_000
/** Both versions print nothing: the older one has no logger of its own. */
const logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }

export const loads: readonly Load[] = [
  {
    name: 'kernel, a lone run',
    unit: 'step',
    size: 3_000,
    measure: async ({ open, workflow }, url, size) => {
      const lone = workflow('lone', async (ctx, steps: number) => {
        for (let n = 0; n < steps; n++) await ctx.step('s', () => n)
      })
      const hf = await open(url, { logger, workflows: [lone] })
      await hf.run(lone, Math.ceil(size / 2))
      const measured = await measuring(url, size, () => hf.run(lone, size))
      await hf.close()
      return measured
    },
  },
  {
    name: 'kernel, 500 runs at once',
    unit: 'step',
    size: 20_000,
    measure: async ({ open, workflow }, url, size) => {
      const ended = new Countdown()
      const many = workflow('many', async (ctx) => {
        for (let n = 0; n < stepsARun; n++) await ctx.step('s', () => n)
        ended.count()
      })
      const hf = await open(url, { logger, workflows: [many], worker: { concurrency: 500 } })
      const run = async (count: number) => {
        ended.set(count)
        await hf.startMany(Array.from({ length: count }, () => ({ workflow: many })))
        await finished(hf, ended)
      }
      await run(Math.ceil(size / stepsARun / 2))
      const measured = await measuring(url, size, () => run(Math.ceil(size / stepsARun)))
      await hf.close()
      return measured
    },
  },
  {
    name: 'queue, runs without steps',
    unit: 'run',
    size: 10_000,
    measure: async ({ open, workflow }, url, size) => {
      const ended = new Countdown()
      const noop = workflow('noop', () => ended.count())
      const hf = await open(url, { logger, workflows: [noop], worker: { concurrency: 500 } })
      const run = async (count: number) => {
        ended.set(count)
        await hf.startMany(Array.from({ length: count }, () => ({ workflow: noop })))
        await finished(hf, ended)
      }
      await run(Math.ceil(size / 2))
      const measured = await measuring(url, size, () => run(size))
      await hf.close()
      return measured
    },
  },
  {
    name: 'recovery of runs whose process was killed',
    unit: 'run',
    size: 2_000,
    leavesLeases: true,
    leave: async (api, url, size) => {
      let interrupted = 0
      const hang = () => {
        // A moment later the beginning of the last step is written, too.
        if (++interrupted === size) setTimeout(() => process.kill(process.pid, 'SIGKILL'), 500)
        return new Promise<never>(() => {})
      }
      const left = interruptible(api, hang)
      const hf = await api.open(url, { logger, workflows: [left], worker: { concurrency: size, leaseMs } })
      await hf.startMany(Array.from({ length: size }, () => ({ workflow: left })))
      await new Promise(() => {})
    },
    measure: async (api, url, size) => {
      const ended = new Countdown(size)
      const hf = await api.open(url, { logger, worker: { concurrency: 500 } })
      const measured = await measuring(url, size, async () => {
        hf.register(interruptible(api, () => ended.count()))
        await finished(hf, ended)
      })
      await hf.close()
      return measured
    },
  },
  {
    name: 'timers that are overdue',
    unit: 'timer',
    size: 5_000,
    leave: async (api, url, size) => {
      const sleeper = sleeping(api)
      const hf = await api.open(url, { logger, workflows: [sleeper], worker: { concurrency: 500 } })
      await hf.startMany(Array.from({ length: size }, () => ({ workflow: sleeper })))
      while ((await hf.queues.count('default')).waiting < size) await sleep(20)
      await hf.close()
    },
    measure: async (api, url, size) => {
      const hf = await api.open(url, { logger, clock: 2 * hourMs })
      const ended = new Countdown(size)
      const measured = await measuring(url, size, async () => {
        hf.register(sleeping(api, () => ended.count()))
        await finished(hf, ended)
      })
      await hf.close()
      return measured
    },
  },
  {
    name: 'timers that are set',
    unit: 'timer',
    size: 5_000,
    measure: async (api, url, size) => {
      const sleeper = sleeping(api)
      const hf = await api.open(url, { logger, workflows: [sleeper] })
      const measured = await measuring(url, size, async () => {
        await hf.startMany(Array.from({ length: size }, () => ({ workflow: sleeper })))
        while ((await hf.queues.count('default')).waiting < size) await sleep(200)
      })
      await hf.close()
      return measured
    },
  },
  {
    name: 'a chat, turns of 1 kB',
    unit: 'turn',
    size: 400,
    measure: async (api, url, size) => {
      const chat = chatting(api)
      const hf = await api.open(url, { logger, workflows: [chat] })
      const say = async (turns: number) => {
        for (let turn = 0; turn < turns; turn++) await hf.thread('chat').run(chat, kilobyte(turn))
      }
      await say(Math.ceil(size / 4))
      const measured = await measuring(url, size, () => say(size))
      await hf.close()
      return measured
    },
  },
  {
    name: 'reading the state of a chat',
    unit: 'turn',
    size: 400,
    leave: leaveChat,
    measure: async ({ open }, url, size) =>
      measuring(url, 20 * size, async () => {
        // Each client reads it anew.
        for (let times = 0; times < 20; times++) {
          const hf = await open(url, { logger, worker: false })
          await hf.thread('chat').state()
          await hf.close()
        }
      }),
  },
  {
    name: 'reading the outputs of a chat',
    unit: 'output',
    size: 400,
    leave: leaveChat,
    measure: readingEach((run) => run.result()),
  },
  {
    name: 'reading the events of a chat',
    unit: 'run',
    size: 400,
    leave: leaveChat,
    measure: readingEach((run) => run.events()),
  },
  {
    name: 'recovery of a run with results of 1 kB',
    unit: 'step',
    size: 1_000,
    leavesLeases: true,
    leave: async (api, url, size) => {
      const left = collecting(api, size, () => {
        setTimeout(() => process.kill(process.pid, 'SIGKILL'), 500)
        return new Promise<never>(() => {})
      })
      const hf = await api.open(url, { logger, workflows: [left], worker: { leaseMs } })
      await hf.start(left)
      await new Promise(() => {})
    },
    measure: async (api, url, size) => {
      const ended = new Countdown(1)
      const hf = await api.open(url, { logger })
      const measured = await measuring(url, size, async () => {
        hf.register(collecting(api, size, () => ended.count()))
        await finished(hf, ended)
      })
      await hf.close()
      return measured
    },
  },
]

/** Reads something of every run of a chat, ten times. */
function readingEach(read: (run: RunHandle) => Promise<unknown>): Load['measure'] {
  return async ({ open }, url, size) => {
    const hf = await open(url, { logger, worker: false })
    const runs = await Promise.all(Array.from({ length: size }, (_, turn) => hf.runs.get(`turn-${turn}`)))
    const measured = await measuring(url, 10 * size, async () => {
      for (let times = 0; times < 10; times++) for (const run of runs) await read(run)
    })
    await hf.close()
    return measured
  }
}

async function leaveChat(api: Api, url: string, size: number): Promise<void> {
  const chat = chatting(api)
  const hf = await api.open(url, { logger, workflows: [chat] })
  for (let turn = 0; turn < size; turn++)
    await (await hf.start(chat, kilobyte(turn), { id: `turn-${turn}`, threadId: 'chat' })).result()
  await hf.close()
}

/** The chat of the README: what is said is the input, the result of a step, in the state and the output. */
function chatting({ workflow }: Api) {
  return workflow<string, string, { messages?: string[] }>('chat', async (ctx, text) => {
    ctx.update((draft) => {
      draft.messages = [...(draft.messages ?? []), text]
    })
    const reply = await ctx.step('reply', () => text.toUpperCase())
    ctx.update((draft) => {
      draft.messages?.push(reply)
    })
    return reply
  })
}

/** Each step returns what it adds to the state. */
function collecting({ workflow }: Api, size: number, last: () => unknown) {
  return workflow<undefined, unknown, { texts?: string[] }>('collect', async (ctx) => {
    for (let n = 0; n < size; n++)
      await ctx.step('say', (step) => {
        const text = kilobyte(n)
        step.update((draft) => {
          draft.texts ??= []
          draft.texts.push(text)
        })
        return text
      })
    await ctx.step('last', last)
  })
}

function kilobyte(n: number): string {
  return `this is number ${n}, `.repeat(60).slice(0, 1_024)
}

/** How long after a kill runs can be taken over where only leases tell of it. */
export const leasesAreOverMs = leaseMs + 200

function interruptible({ workflow }: Api, last: () => unknown) {
  return workflow('report', async (ctx) => {
    for (let n = 0; n < stepsARun; n++) await ctx.step('s', () => n)
    await ctx.step('interrupted', last)
  })
}

function sleeping({ workflow }: Api, wake: () => void = () => {}) {
  return workflow('sleeper', async (ctx) => {
    await ctx.sleep(hourMs)
    wake()
  })
}

/** Looks into the store only when all functions have ended: what looking costs would otherwise grow with the time by the clock. */
async function finished(hf: holdfast.Holdfast, ended: Countdown): Promise<void> {
  await ended.isOver
  for (let left = 1; left > 0; ) {
    const { pending, running } = await hf.queues.count('default')
    left = pending + running
    if (left > 0) await sleep(10)
  }
}

class Countdown {
  isOver: Promise<void> = Promise.resolve()
  #left = 0
  #end = () => {}

  constructor(count = 0) {
    this.set(count)
  }

  set(count: number): void {
    this.#left = count
    this.isOver = new Promise((resolve) => {
      this.#end = resolve
    })
  }

  count(): void {
    if (--this.#left === 0) this.#end()
  }
}

async function measuring(url: string, operations: number, act: () => Promise<unknown>): Promise<Measured> {
  const serverBefore = await readServerUsage(url)
  const startedAt = performance.now()
  const before = process.cpuUsage()
  await act()
  const { user, system } = process.cpuUsage(before)
  const measured = { operations, cpuUs: user + system, wallMs: performance.now() - startedAt }
  const serverAfter = await readServerUsage(url)
  if (serverBefore === undefined || serverAfter === undefined) return measured
  const server = {
    cpuUs: serverAfter.cpuUs - serverBefore.cpuUs,
    commands: serverAfter.commands - serverBefore.commands,
    bytes: serverAfter.bytes - serverBefore.bytes,
  }
  return { ...measured, server }
}
