import { describe, expect, it } from 'vitest'
import { createCodec } from '../../model/codec.ts'
import { deepFreeze } from '../../model/container.ts'
import { applyPatch, diffUpdate, type Patch, replaceState } from '../../model/patch.ts'
import { state } from '../../model/state.ts'
import type { StatePatch } from '../replay/tape.ts'
import { rebuildTimeline } from './rebuild-timeline.ts'
import { StateTimeline } from './state-timeline.ts'
import { emptyState } from './thread-state.ts'

const codec = createCodec()

/** A log of changes, each made on the state that the log has by then. */
class Log {
  readonly patches: StatePatch[] = []
  head: unknown

  constructor(initial: unknown) {
    this.head = deepFreeze(initial)
  }

  change(recipe: (draft: { list: string[] } & Record<string, unknown>) => void, more: Partial<StatePatch> = {}): this {
    const patch = diffUpdate(this.head, (draft) => void recipe(draft as never)) ?? []
    return this.add(patch, more)
  }

  push(text: string, more: Partial<StatePatch> = {}): this {
    return this.change((draft) => void draft.list.push(text), more)
  }

  add(patch: Patch, more: Partial<StatePatch> = {}): this {
    const seq = this.patches.length + 1
    this.patches.push({ patch: codec.encode(patch), version: null, seq, step: `s${seq}`, isPassedBy: false, ...more })
    this.head = applyPatch(this.head, patch)
    return this
  }

  /** Drops a patch, by decision of a record after all that is here. */
  drop(seq: number): this {
    const patch = this.patches[seq - 1] as StatePatch
    patch.droppedAt = this.patches.length + 0.5
    return this
  }

  readonly base = { ...emptyState, value: undefined as unknown }

  rebuild(definition?: Parameters<typeof rebuildTimeline>[0]['definition']) {
    return rebuildTimeline({ runId: 'r', codec, base: this.base, patches: this.patches, definition })
  }

  /** What a new holder does: it writes down the state that it starts from. */
  hold(): this {
    const rebuilt = this.rebuild()
    if (rebuilt?.patch) this.add(codec.decode(rebuilt.patch) as Patch, { isRebuild: true })
    return this
  }

  get tip(): unknown {
    const rebuilt = this.rebuild()
    return rebuilt === null ? this.head : rebuilt.values.at(-1)
  }
}

function logOf(initial: Record<string, unknown>): Log {
  const log = new Log(initial)
  Object.assign(log.base, { value: log.head })
  return log
}

describe('the state without what is to be made again', () => {
  it('is the log’s where nothing was dropped', () => {
    expect(logOf({ list: [] }).push('a').push('b').rebuild()).toBeNull()
  })

  it('keeps what was not dropped, in its old order; the patch that is written makes the log’s state equal (R1)', () => {
    const log = logOf({ list: [] }).push('a').push('dropped').push('b').push('by hand', { step: null, isPassedBy: true }).drop(2)
    expect(log.tip).toEqual({ list: ['a', 'b', 'by hand'] })
    expect(log.head).toEqual({ list: ['a', 'dropped', 'b', 'by hand'] })
    expect(log.hold().head).toEqual({ list: ['a', 'b', 'by hand'] })
    expect(log.rebuild()?.patch).toBeNull()
  })

  it('is the same for the next holder, whether the patch was written or not (R2)', () => {
    const before = logOf({ list: [] }).push('a').push('dropped').push('b').drop(2)
    const after = logOf({ list: [] }).push('a').push('dropped').push('b').drop(2).hold()
    expect(after.rebuild()?.values.slice(0, 2)).toEqual(before.rebuild()?.values)
    expect(after.push('c').tip).toEqual({ list: ['a', 'b', 'c'] })
    expect(after.head).toEqual({ list: ['a', 'b', 'c'] })
  })

  it('is right after a second retry, which drops what came before and after the first patch that was written', () => {
    const log = logOf({ list: [] }).push('a').push('dropped').push('b').drop(2).hold().push('c').push('d')
    log.drop(3).drop(5)
    expect(log.tip).toEqual({ list: ['a', 'd'] })
    expect(log.hold().push('e').head).toEqual({ list: ['a', 'd', 'e'] })
    expect(log.tip).toEqual({ list: ['a', 'd', 'e'] })
  })

  it('goes back with a rollback to between the decision and the patch', () => {
    const log = logOf({ list: [] }).push('a').push('dropped').push('b').drop(2)
    const there = log.head
    log.hold().push('c', { isPassedBy: true })
    log.add(diffUpdate(log.head, () => there as object) as Patch, { backTo: 3, isPassedBy: true })
    expect(log.head).toEqual({ list: ['a', 'dropped', 'b'] })
    expect(log.tip).toEqual({ list: ['a', 'b'] })
  })

  it('is migrated as the log’s was', () => {
    const definition = state({
      version: 2,
      initial: () => ({ list: [], names: [] }),
      migrations: { 1: ({ list }: { list: string[] }) => ({ list, size: list.length }) },
    })
    const log = logOf({ list: [] })
    Object.assign(log.base, { version: 1 })
    log.push('dropped').push('a').drop(1)
    log.add(replaceState({ list: ['dropped', 'a'], size: 2 }), { version: 2, isPassedBy: true })
    const values = log.rebuild(definition as never)?.values
    expect(values?.at(-1)).toEqual({ list: ['a'], size: 1 })
  })

  it('is refused where a kept change does not fit, naming the step, the path and the way out', () => {
    const log = logOf({ list: [], jobs: {} })
      .change((draft) => void Object.assign(draft['jobs'] as object, { a: {} }))
      .change((draft) => void Object.assign((draft['jobs'] as { a: object }).a, { isDone: true }))
      .drop(1)
    expect(() => log.rebuild()).toThrow(
      expect.objectContaining({
        code: 'nondeterminism',
        message: expect.stringMatching(/"s2".*\$\.jobs\.a.*run\.rollback/),
        details: expect.objectContaining({ step: 's2', runId: 'r' }),
      }),
    )
  })

  it('is refused with the path also where it leads into something that has no parts', () => {
    const log = logOf({ list: [], job: { a: 1 } })
      .change((draft) => void Object.assign(draft['job'] as object, { a: {} }))
      .change((draft) => void Object.assign((draft['job'] as { a: object }).a, { isDone: true }))
      .drop(1)
    expect(() => log.rebuild()).toThrow(
      expect.objectContaining({ code: 'nondeterminism', details: expect.objectContaining({ path: '$.job.a.isDone' }) }),
    )
  })
})

describe('the timeline of a state', () => {
  const stateOf = (log: Log) =>
    new StateTimeline({ codec, base: log.base, patches: log.patches, rebuilt: log.rebuild() ?? undefined, definition: undefined })

  it('shows each view what it has come to, however far others are (L4)', () => {
    const log = logOf({ list: [] })
    for (let i = 1; i <= 200; i++) log.push(String(i))
    const timeline = stateOf(log)
    const section = timeline.viewAt(150)
    timeline.view.advance(3)
    expect(timeline.view.state).toEqual({ list: ['1', '2', '3'] })
    expect((section.state as { list: string[] }).list).toHaveLength(150)
    timeline.view.advance(2)
    expect(timeline.view.position).toBe(3)
  })

  it('keeps what is added later from a view that moves to where the patches ended', () => {
    const timeline = stateOf(logOf({ list: [] }).push('a'))
    timeline.stage([(draft: { list: string[] }) => void draft.list.push('b')] as never)
    const { mark } = timeline
    timeline.stage([(draft: { list: string[] }) => void draft.list.push('c')] as never)
    timeline.view.advance(mark)
    expect(timeline.view.state).toEqual({ list: ['a', 'b'] })
    expect(timeline.whole(9).value).toEqual({ list: ['a', 'b', 'c'] })
  })

  it('does not show what was dropped, and shows edits by hand that nothing else stands before', () => {
    const log = logOf({ list: [] })
      .push('a')
      .push('dropped')
      .push('by hand', { isPassedBy: true, isEdit: true })
      .push('b')
      .drop(2)
    const timeline = stateOf(log)
    timeline.view.advance(1)
    expect(timeline.showEdits()).toBe(true)
    expect(timeline.view.state).toEqual({ list: ['a', 'by hand'] })
    expect(timeline.view.position).toBe(3)
  })
})
