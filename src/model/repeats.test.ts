import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCodec } from './codec.ts'
import type { EventType, NewEvent } from './event.ts'
import { diffUpdate } from './patch.ts'
import type { Payload } from './payload.ts'
import { isShortened, leaveOutRepeats, putBackRepeats, readShortened } from './repeats.ts'

const codec = createCodec()
const corrupt = expect.objectContaining({ code: 'corrupt_record' })
const said = 'said, "with quotes" \\ and 😀. '.repeat(12)

function event(type: EventType, data: unknown, patch: unknown = null): NewEvent {
  return {
    ...{ type, step: null, count: 0, attempt: 0, at: 0, durationMs: null },
    payload: data === null ? null : codec.encode(data),
    patch: patch === null ? null : codec.encode(patch),
  }
}

/** The patch that puts a value into a state. */
function patchOf(value: unknown): unknown {
  return diffUpdate({ list: ['before'] }, (draft: { list: unknown[] }) => void draft.list.push(value))
}

/** As a reader does who has all events of the commit. */
function putBack(events: readonly NewEvent[], index: number): Payload | null {
  const payload = events[index]?.payload ?? null
  return isShortened(payload) ? putBackRepeats(readShortened(payload), (offset) => events[index + offset]?.patch) : payload
}

describe('what a result and a patch of its commit both say', () => {
  it('is kept in the patch, whichever record of the commit has it', () => {
    const own = leaveOutRepeats([
      event('step_completed', { result: { text: said, tokens: 12 } }, patchOf({ role: 'agent', text: said })),
    ])
    expect(own[0]?.payload?.length).toBeLessThan(120)
    const before = leaveOutRepeats([
      event('state_updated', null, patchOf(said)),
      event('run_completed', { output: said, usage: { steps: 3 } }),
    ])
    expect(before[1]?.payload?.length).toBeLessThan(120)
    const after = leaveOutRepeats([event('step_completed', { result: said }), event('state_updated', null, patchOf(said))])
    expect(after[0]?.payload?.length).toBeLessThan(120)
    expect([own, before, after].map((events) => events.map(({ patch }) => patch))).toEqual([
      [codec.encode(patchOf({ role: 'agent', text: said }))],
      [codec.encode(patchOf(said)), null],
      [null, codec.encode(patchOf(said))],
    ])
    expect(putBack(own, 0)).toBe(codec.encode({ result: { text: said, tokens: 12 } }))
    expect(putBack(before, 1)).toBe(codec.encode({ output: said, usage: { steps: 3 } }))
    expect(putBack(after, 0)).toBe(codec.encode({ result: said }))
  })

  it('is found in a value as a whole, and in several patches', () => {
    const rows = Array.from({ length: 60 }, (_, n) => ({ n, ok: true }))
    const [whole] = leaveOutRepeats([event('step_completed', { result: rows }, patchOf(rows))])
    expect(whole?.payload?.length).toBeLessThan(80)
    const other = said.replaceAll('said', 'heard')
    const events = leaveOutRepeats([
      event('state_updated', null, patchOf(said)),
      event('state_updated', null, patchOf(`He ${other}`)),
      event('run_completed', { output: [1, other, said, other] }),
    ])
    expect(events[2]?.payload?.length).toBeLessThan(150)
    expect(putBack(events, 2)).toBe(codec.encode({ output: [1, other, said, other] }))
  })

  it('is left as it is where it is short, in another kind of record, compressed, or not the same', () => {
    const short = [event('step_completed', { result: 'short' }, patchOf('short'))]
    const input = [event('run_started', { input: said }, patchOf(said))]
    const large = said.repeat(100)
    const compressed = [event('step_completed', { result: large }, patchOf(large))]
    const other = [event('step_completed', { result: said }, patchOf(said.toUpperCase()))]
    for (const events of [short, input, compressed, other, [event('run_completed', { output: said })]])
      expect(leaveOutRepeats(events)).toEqual(events)
  })

  it('comes back exactly (property)', () => {
    const text = fc.oneof(fc.string(), fc.constantFrom('"', '\\', '~[1,2]', '\n', ']', '\ud83d', '😀'))
    const long = fc.tuple(text, fc.integer({ min: 1, max: 120 })).map(([one, times]) => `${one} or so, `.repeat(times))
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { depthSize: 'small' },
        long,
        fc.double(),
        fc.constantFrom(null, undefined, 5n, new Date(0)),
        tie('object'),
        tie('list'),
      ),
      object: fc.dictionary(fc.oneof(fc.constantFrom('a', '$hf', 'text'), text), tie('any'), {
        maxKeys: 4,
        noNullPrototype: true,
      }),
      list: fc.array(tie('any'), { maxLength: 4 }),
    })).any
    const commit = fc.array(
      fc.record({
        type: fc.constantFrom('step_completed', 'run_completed', 'state_updated'),
        result: fc.nat(3),
        put: fc.option(fc.nat(3)),
      }),
      { minLength: 1, maxLength: 4 },
    )
    let count = 0
    fc.assert(
      fc.property(fc.array(value, { minLength: 4, maxLength: 4 }), commit, (values, kinds) => {
        const events = kinds.map(({ type, result, put }) =>
          event(
            type as EventType,
            { result: [values[result], values[(result + 1) % 4]] },
            put === null ? null : patchOf(values[put]),
          ),
        )
        const kept = leaveOutRepeats(events)
        for (const [index, { payload }] of events.entries()) {
          expect(putBack(kept, index)).toEqual(payload)
          if (kept[index]?.payload === payload) continue
          count += 1
          expect(kept[index]?.payload?.length).toBeLessThan((payload?.length ?? 0) - 100)
        }
        expect(kept.map(({ payload, ...rest }) => rest)).toEqual(events.map(({ payload, ...rest }) => rest))
      }),
      { numRuns: 500 },
    )
    expect(count).toBeGreaterThan(50)
  })

  it('is damage where the patch is gone or says something else, and where nobody puts it back', () => {
    const [updated, kept] = leaveOutRepeats([
      event('state_updated', null, patchOf(said)),
      event('run_completed', { output: said }),
    ])
    const payload = kept?.payload as string
    const patch = updated?.patch as string
    expect(() => codec.decode(payload)).toThrow(corrupt)
    for (const found of [null, '', patch.replace('quotes', 'quotas'), ` ${patch}`, patch.slice(0, -20)])
      expect(() => putBackRepeats(readShortened(payload), () => found)).toThrow(corrupt)
    const read = (text: string) =>
      isShortened(text) ? putBackRepeats(readShortened(text), (offset) => (offset === -1 ? patch : null)) : codec.decode(text)
    expect(read(payload)).toBe(codec.encode({ output: said }))
    for (let at = 0; at < payload.length; at++)
      expect(() => read(`${payload.slice(0, at)}${payload[at] === '7' ? '8' : '7'}${payload.slice(at + 1)}`)).toThrow(corrupt)
    for (const other of ['~', '~[]', '~[1]', '~[1,2,3,4', '~[1,0,0,0]', '~[1,0,0,0,x]', '~[1,0,0,0,0.5]'])
      expect(() => readShortened(other)).toThrow(corrupt)
  })
})
