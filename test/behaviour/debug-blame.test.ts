// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { type Context, type Holdfast, state, type Writer, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { codeOfRejection } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

interface Notes {
  cells: Record<string, string>
  list: { text: string }[]
}

const notes = state({ version: 1, initial: (): Notes => ({ cells: { a: 'initial' }, list: [] }) })

onEveryStore('blame', ({ open }) => {
  it('names the step and attempt, the function, or the person that wrote a value, and who before', async () => {
    const hf = await open()
    let flaws = 1
    const work = workflow({ name: 'work', state: notes }, async (ctx) => {
      ctx.update((draft) => void (draft.cells['a'] = 'by the function'))
      await ctx.step(
        'write',
        (step) => {
          step.update((draft) => {
            draft.cells['a'] = `attempt ${step.attempt}`
            draft.list.push({ text: 'first' })
          })
          if (flaws-- > 0) throw new Error('busy')
        },
        { retry: { minMs: 1 } },
      )
      await ctx.step('shift', (step) => step.update((draft) => void draft.list.unshift({ text: 'before it' })))
    })
    await hf.run(work, undefined, { id: 'a' })
    const thread = hf.thread('a')
    await thread.update<Notes>((draft) => void (draft.cells['a'] = 'by hand'))
    const head = (await thread.checkpoints()).at(-1)?.checkpoint as string
    const blame = await hf.debug.blame(head, 'cells.a')
    expect(blame).toMatchObject({ checkpoint: head, path: ['cells', 'a'], isThere: true, value: 'by hand' })
    expect([blame.last, ...blame.before]).toMatchObject([
      { event: 'state_updated', runId: null, step: null, how: 'set' },
      { event: 'step_completed', runId: 'a', step: 'write', attempt: 2 },
      { event: 'state_updated', runId: 'a', step: null },
      { event: 'state_migrated', runId: 'a' },
    ])
    const item = await hf.debug.blame(head, ['list', 1, 'text'])
    expect(item).toMatchObject({ value: 'first', last: { step: 'write', path: ['list', 0, 'text'] }, before: [] })
    expect(await hf.debug.blame(head, 'list')).toMatchObject({ last: { step: 'shift', how: 'changed' } })
    expect((await hf.debug.blame(head, 'cells.a', { limit: 1 })).before).toEqual([])
    expect(await hf.debug.blame(head, 'cells.missing')).toMatchObject({ isThere: false, last: null, before: [] })
    await thread.update<Notes>((draft) => void delete draft.cells['a'])
    const gone = (await thread.checkpoints()).at(-1)?.checkpoint as string
    expect(await hf.debug.blame(gone, 'cells.a')).toMatchObject({ isThere: false, last: { how: 'removed', runId: null } })
    expect(await codeOfRejection(hf.debug.blame('a@99', 'cells.a'))).toBe('invalid_id')
    expect(await codeOfRejection(hf.debug.blame(head, 'cells[' as never))).toBe('invalid_input')
    expect(await codeOfRejection(hf.as('other').debug.blame(head, 'cells.a'))).toBe('invalid_id')
  })

  it('agrees with full copies of a random history', async () => {
    await tryHistory(await open(), 7, 5)
  })
})

onLocalStores('blame in random histories', ({ open }) => {
  it('with steps, edits by hand, rollbacks, retries, rewinds and forks agrees with full copies of all states', async () => {
    const through = new Set<string>()
    for (const seed of [100, 105, 109]) {
      const hf = await open()
      for (const event of await tryHistory(hf.as(`seed ${seed}`), seed)) through.add(event)
      await hf.close()
    }
    // Otherwise these histories show nothing.
    expect([...through].sort()).toEqual(['run_rolled_back', 'state_updated', 'thread_forked', 'thread_rewound'])
  })
})

/** Who wrote a token: every write of a history writes another one. */
interface Author {
  readonly runId: string | null
  readonly step: string | null
  readonly attempt: number
}

class Story {
  readonly authors = new Map<string, Author>()
  readonly random: () => number
  flaws: number

  constructor(seed: number) {
    this.random = randomFrom(seed)
    this.flaws = 2 + this.pick(6)
  }

  pick(count: number): number {
    return Math.floor(this.random() * count)
  }

  /** A recipe that changes one thing or a few. */
  recipe(author: Author): (draft: Notes) => void {
    return (draft) => {
      for (let i = this.pick(3); i >= 0; i--) {
        const token = `token ${this.authors.size}`
        const at = this.pick(draft.list.length + 1)
        const act = this.pick(7)
        if (act === 0 && draft.list.length > 2) draft.list.splice(at % draft.list.length, 1)
        else if (act === 1 && draft.list.length > 2) draft.list.reverse()
        else if (act === 2 && Object.keys(draft.cells).length > 2) delete draft.cells[Object.keys(draft.cells)[at] ?? 'a']
        else {
          this.authors.set(token, author)
          const item = draft.list[at]
          if (act === 3) draft.list.splice(at, 0, { text: token })
          else if (act === 4 && item !== undefined) item.text = token
          else if (act === 5) draft.list.push({ text: token })
          else draft.cells['abcd'[this.pick(4)] as string] = token
        }
      }
    }
  }
}

function workflowOf(story: Story) {
  const flawed = () => {
    if (story.flaws > 0 && story.pick(2) === 0) {
      story.flaws--
      throw new Error('flaw')
    }
  }
  const writing = (ctx: Context<Notes>, name: string) =>
    ctx.step(
      name.slice(name.lastIndexOf('/') + 1),
      (step) => {
        step.update(story.recipe({ runId: 'run', step: name, attempt: step.attempt }) as never)
        flawed()
      },
      { retry: { attempts: 2, minMs: 1 } },
    )
  return workflow({ name: 'story', state: notes }, async (ctx) => {
    for (let part = 0; part < 4; part++) {
      await writing(ctx as never, `one ${part}`)
      ctx.update(story.recipe({ runId: 'run', step: null, attempt: 0 }) as never)
      const section = ctx.section(
        `section ${part}`,
        async () => {
          try {
            await writing(ctx as never, `section ${part}/inner`)
            await ctx.step('check', flawed, { retry: { attempts: 1 } })
          } catch (error) {
            // Made again with the next attempt: these are taken out of the state.
            const author = { runId: 'run', step: `section ${part}`, attempt: 0 }
            for (let i = 0; i < 3; i++) ctx.update(story.recipe(author) as never)
            throw error
          }
        },
        { retry: { attempts: 3, minMs: 1 } },
      )
      await Promise.all([section, writing(ctx as never, `beside ${part}`)])
      await ctx.waitFor(`part ${part}`)
    }
  })
}

/** What brought values back that were blamed on others. */
async function tryHistory(hf: Holdfast, seed: number, every = 1): Promise<Set<string>> {
  const story = new Story(seed)
  const run = await hf.start(workflowOf(story), undefined, { id: 'run', threadId: 'thread' })
  const thread = hf.thread('thread')
  const settles = () =>
    vi.waitUntil(async () => ['waiting', 'failed', 'completed', 'paused'].includes((await run.info()).status), { interval: 5 })
  let part = 0
  let rollbacks = 2
  for (let acts = 0; acts < 40; acts++) {
    await settles()
    const { status } = await run.info()
    const choice = story.pick(9)
    if (status === 'completed') break
    if (status === 'failed') await run.retry()
    else if (status === 'paused') await run.resume()
    else if (choice < 3) await thread.update(story.recipe({ runId: null, step: null, attempt: 0 })).catch(() => {})
    else if (rollbacks > 0 && choice < 5) {
      const checkpoints = await thread.checkpoints()
      rollbacks--
      await run.rollback(checkpoints[story.pick(checkpoints.length)]?.checkpoint as string).catch(() => {})
      part = 0
    } else {
      for (let i = 0; i <= part; i++)
        await hf.signal('run', `part ${i}`, undefined, { id: `${part} ${i} ${acts}` }).catch(() => {})
      part = Math.min(3, part + 1)
      await new Promise((resolve) => setTimeout(resolve, 30))
    }
  }
  await settles()
  const copies = new Copies(hf)
  await copies.take('thread')
  const { status } = await run.info()
  const threads = [
    'thread',
    ...(await changeThePast(hf, story, copies, { isOver: status === 'completed' || status === 'failed' })),
  ]
  await copies.compare()
  const through = new Set<string>()
  for (const threadId of threads)
    for (const event of await judge(hf, story, { threadId, seed, every, copies })) through.add(event)
  return through
}

/** Forks, rewinds and edits at random, also of forks. Returns the forks. */
async function changeThePast(hf: Holdfast, story: Story, copies: Copies, { isOver }: { isOver: boolean }): Promise<string[]> {
  const threads = ['thread']
  for (let acts = 0; acts < 12; acts++) {
    const id = threads[story.pick(threads.length)] as string
    const checkpoints = await hf.thread(id).checkpoints()
    const { checkpoint } = checkpoints[story.pick(checkpoints.length)] as { checkpoint: string }
    const choice = story.pick(4)
    const isBusy = (await hf.runs.list({ threadId: id, status: ['waiting', 'paused'] })).items.length > 0
    if (choice === 0 && threads.length < 4) {
      const fork = await hf.thread(id).fork(checkpoint, { threadId: `fork ${acts}` })
      expect([checkpoint, await fork.state()]).toEqual([checkpoint, copies.of(checkpoint)])
      threads.push(fork.id)
      await copies.take(fork.id)
    } else if (choice === 1 && !isBusy && (id !== 'thread' || isOver)) {
      await hf.thread(id).rewind(checkpoint)
      expect([checkpoint, await hf.thread(id).state()]).toEqual([checkpoint, copies.of(checkpoint)])
    } else if ((await hf.thread(id).state()) !== undefined) {
      await hf.thread(id).update(story.recipe({ runId: null, step: null, attempt: 0 }))
    }
    await copies.take(id)
  }
  return threads.slice(1)
}

/** Full copies of all states, each taken when its position was new. */
class Copies {
  readonly #hf: Holdfast
  readonly #copies = new Map<string, Notes | undefined>()

  constructor(hf: Holdfast) {
    this.#hf = hf
  }

  async take(threadId: string): Promise<void> {
    const { checkpoint } = await this.#hf.thread(threadId).info()
    for (let seq = Number(checkpoint?.slice(threadId.length + 1)); seq > 0; seq--) {
      const id = `${threadId}@${seq}`
      if (this.#copies.has(id)) return
      this.#copies.set(id, structuredClone(await this.#hf.thread(threadId).stateAt<Notes>(id)))
    }
  }

  of(id: string): Notes | undefined {
    return this.#copies.get(id)
  }

  async compare(): Promise<void> {
    for (const [id, copy] of this.#copies)
      expect([id, await this.#hf.thread(id.slice(0, id.lastIndexOf('@'))).stateAt(id)]).toEqual([id, copy])
  }
}

/** At each of these checkpoints, for every value: its author is who is blamed, and the state before that did not have it. */
async function judge(
  hf: Holdfast,
  story: Story,
  { threadId, seed, every, copies }: { threadId: string; seed: number; every: number; copies: Copies },
): Promise<Set<string>> {
  const through = new Set<string>()
  const checkpoints = await hf.thread(threadId).checkpoints()
  const states = { get: (id: string) => copies.of(id) ?? { cells: {}, list: [] } }
  for (const { checkpoint } of checkpoints.filter((_, index) => (checkpoints.length - index) % every === 0)) {
    const { cells, list } = states.get(checkpoint) as Notes
    const values = [
      ...Object.entries(cells).map(([key, value]) => [['cells', key], value] as const),
      ...list.map(({ text }, index) => [['list', index, 'text'], text] as const),
    ]
    for (const [path, value] of values) {
      if (value === 'initial') continue
      const blame = await hf.debug.blame(checkpoint, path)
      for (const { event } of blame.last?.through ?? []) through.add(event)
      const told = `seed ${seed}, ${checkpoint}, ${path.join('.')}`
      expect({ told, ...authorOf(blame.last), value: blame.value }).toEqual({ told, ...story.authors.get(value), value })
      const written = blame.last?.checkpoint as string
      const at = written.lastIndexOf('@')
      const before = `${written.slice(0, at)}@${Number(written.slice(at + 1)) - 1}`
      expect([told, has(states.get(written), value), has(states.get(before), value)]).toEqual([told, true, false])
      const prior = path[0] === 'cells' ? states.get(before)?.cells[path[1] as string] : undefined
      if (prior !== undefined && prior !== 'initial')
        expect({ told, ...authorOf(blame.before[0]) }).toEqual({ told, ...story.authors.get(prior) })
    }
  }
  return through
}

function authorOf(writer: Writer | null | undefined): Author | undefined {
  return writer == null ? undefined : { runId: writer.runId, step: writer.step, attempt: writer.attempt }
}

function has(copy: Notes | undefined, token: string): boolean {
  return copy !== undefined && (Object.values(copy.cells).includes(token) || copy.list.some(({ text }) => text === token))
}

function randomFrom(seed: number): () => number {
  let a = seed * 0x9e3779b9
  return () => {
    a = (a + 0x6d2b79f5) | 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
