import { setTimeout as delay } from 'node:timers/promises'
import { holdfast } from './target.ts'

/** What the Holdfast under test has. The machine runs on older ones as well, to show what it finds there. */
export interface Features {
  /** `ctx.section`; before, a scope with options. */
  readonly section: boolean
  /** `workflow({ undos })`, and functions refused inside sections. */
  readonly namedUndo: boolean
  /** `ctx.waitFor([names])`. */
  readonly waitForSeveral: boolean
  /** `memory.of(subject).remember`. */
  readonly facts: boolean
}

let known: Promise<Features> | undefined

export function findFeatures(): Promise<Features> {
  known ??= probe()
  return known
}

const silent = { debug() {}, info() {}, warn() {}, error() {} }

async function probe(): Promise<Features> {
  const found = { section: false, namedUndo: false, waitForSeveral: false, facts: false }
  const note = () => {
    found.namedUndo = true
  }
  const options = { name: 'probe', undos: { note } } as { name: string }
  const probing = holdfast.workflow<undefined, void>(options, async (ctx) => {
    found.section = 'section' in ctx && typeof ctx.section === 'function'
    await ctx.step('undone', () => 1, { undo: 'note', retry: { attempts: 1 } } as never)
    await ctx.waitFor('never')
  })
  const several = holdfast.workflow<undefined, unknown>('several', async (ctx) => ctx.waitFor(['yes', 'no'] as never))
  const hf = await holdfast.open('memory:', { workflows: [probing, several], worker: { pollMs: 5 }, logger: silent })
  found.facts = 'memory' in hf && 'remember' in hf.memory.of('probe')
  try {
    const run = await hf.start(probing, undefined, { id: 'probe' })
    for (let tries = 0; tries < 400; tries++) {
      const { status } = await run.info()
      if (status === 'waiting' || status === 'failed') break
      await delay(5)
    }
    await run.cancel().catch(() => {})
    const waiting = await hf.start(several, undefined, { id: 'several' })
    await hf.signal('several', 'yes', 1)
    const value = await waiting.result({ timeoutMs: 2_000 }).catch(() => undefined)
    found.waitForSeveral = (value as { name?: string } | undefined)?.name === 'yes'
  } finally {
    await hf.close()
  }
  return found
}
