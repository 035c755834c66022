import { randomBytes } from 'node:crypto'
import { expect } from 'vitest'
import type { Payload } from '../../model/payload.ts'
import { plainPayload } from '../store-contents.ts'
import { event, type StoreTest, stepCompleted } from './scene.ts'

const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index)

const payloads: Record<string, Payload> = {
  'an empty text': '',
  'no bytes': new Uint8Array(0),
  'the text null': 'null',
  'a text that looks like bytes': '\\x00ff',
  'a text with quotes and backslashes': '{"a":"\\"\\\\\\n"}',
  'a text of several lines': 'a\nb\r\nc\td\u2028\u2029',
  'a text in many scripts': 'äöü ß 日本語 العربية हिन्दी 🦞👩‍🔬 e\u0301 \uFEFF \u{10FFFF}',
  'a text with an escaped NUL and lone surrogate': '{"a":"\\u0000\\ud800"}',
  'a text that looks like SQL': "'; drop table log; --",
  'a text of a large number': '9007199254740993',
  'every byte': everyByte,
  'bytes that are not UTF-8': new Uint8Array([0xff, 0xfe, 0xc3, 0x28, 0xed, 0xa0, 0x80, 0]),
  'bytes that are text': new Uint8Array(Buffer.from('{"a":1}')),
  'a text of 1 MB': 'aé日🦞'.repeat(100_000),
  'bytes of 1 MB': new Uint8Array(randomBytes(1_000_000)),
}

export function testPayloads(test: StoreTest): void {
  for (const [name, payload] of Object.entries(payloads)) {
    test(`S8: ${name} comes back byte for byte, wherever it was put`, async (scene) => {
      const claim = await scene.createAndClaim({ id: 'r', queued: event('run_queued', { payload }) })
      const expected = plainPayload(payload)
      expect(plainPayload(claim.input)).toBe(expected)
      const operation = { kind: 'intend', key: 'k', name: 'send' } as const
      await scene.write(claim, {
        events: [event('step_completed', { step: 's', payload, patch: payload })],
        snapshot: payload,
        operation,
      })
      await scene.write(claim, { operation: { kind: 'note', key: 'k', evidence: payload } })
      await scene.write(claim, { operation: { kind: 'complete', key: 'k', result: payload } })
      await scene.deliver({ runId: 'r', payload })

      const [queued, step] = await scene.store.readLog({ owner: '', threadId: 'r' })
      expect(plainPayload(queued?.payload ?? null)).toBe(expected)
      expect(plainPayload(step?.payload ?? null)).toBe(expected)
      expect(plainPayload(step?.patch ?? null)).toBe(expected)
      const snapshot = await scene.store.readSnapshot({ owner: '', threadId: 'r', atSeq: 2 })
      expect(plainPayload(snapshot?.state ?? null)).toBe(expected)
      const stored = await scene.operation('k')
      expect(plainPayload(stored.result)).toBe(expected)
      expect(plainPayload(stored.evidence)).toBe(expected)
      const [message] = await scene.store.readInbox({ owner: '', runId: 'r' })
      expect(plainPayload(message?.payload ?? null)).toBe(expected)
      const byteCount = typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength
      const checkpoints = await scene.store.listCheckpoints({ owner: '', threadId: 'r' })
      expect(checkpoints.map(({ bytes }) => bytes)).toEqual([byteCount, 2 * byteCount])
    })
  }

  test('S8: text stays text and bytes stay bytes', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a', 'abc'), stepCompleted('b', Buffer.from('abc'))] })
    const [text, bytes] = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(text?.payload).toBe('abc')
    expect(bytes?.payload).toBeInstanceOf(Uint8Array)
  })

  test('S8: no payload is not an empty one', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const events = [event('step_completed', { payload: null, patch: '' }), event('step_completed', { payload: '', patch: null })]
    await scene.write(claim, { events })
    const log = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(log.map(({ payload, patch }) => [payload, patch])).toEqual([
      [null, ''],
      ['', null],
    ])
    expect(await scene.store.readLog({ owner: '', threadId: 'r', patchesOnly: true })).toMatchObject([{ seq: 2 }])
  })

  test('S8: a window into a larger buffer is stored as what it shows', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a', everyByte.subarray(10, 13))] })
    const [record] = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(plainPayload(record?.payload ?? null)).toBe('bytes:0a0b0c')
  })

  test('S8: bytes that the caller changes afterwards do not change the store', async (scene) => {
    const bytes = new Uint8Array([1, 2, 3])
    const claim = await scene.createAndClaim({ id: 'r', queued: event('run_queued', { payload: bytes }) })
    await scene.write(claim, {
      events: [stepCompleted('a', bytes)],
      snapshot: bytes,
      operation: { kind: 'intend', key: 'k', name: 'n' },
    })
    await scene.write(claim, { operation: { kind: 'complete', key: 'k', result: bytes } })
    await scene.deliver({ runId: 'r', payload: bytes })
    bytes.fill(9)
    const readAll = async () => [
      ...(await scene.store.readLog({ owner: '', threadId: 'r' })).map(({ payload }) => payload),
      (await scene.store.readSnapshot({ owner: '', threadId: 'r', atSeq: 9 }))?.state ?? null,
      (await scene.operation('k')).result,
      (await scene.store.readInbox({ owner: '', runId: 'r' }))[0]?.payload ?? null,
    ]
    const expected = Array.from({ length: 5 }, () => 'bytes:010203')
    const read = await readAll()
    expect(read.map(plainPayload)).toEqual(expected)
    for (const payload of read) (payload as Uint8Array).fill(7)
    expect((await readAll()).map(plainPayload)).toEqual(expected)
  })

  test('S8: what the caller does to an answer does not change the store', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'n' }, snapshot: '{}' })
    const before = structuredClone(await scene.contents())
    const answers: object[] = [claim.run, claim.thread, await scene.run('r'), await scene.thread('r'), await scene.operation('k')]
    const [owner] = await scene.contents()
    answers.push(...(owner?.runs ?? []), ...(owner?.threads[0]?.log ?? []), ...(owner?.threads[0]?.checkpoints ?? []))
    answers.push(...(owner?.threads[0]?.snapshots ?? []), ...(owner?.inboxes[0]?.messages ?? []))
    for (const answer of answers) for (const field of Object.keys(answer)) Reflect.set(answer, field, 'spoilt')
    expect(await scene.contents()).toEqual(before)
  })

  test('S8: large numbers and negative ones in a row come back exactly', async (scene) => {
    const claim = await scene.createAndClaim(
      { id: 'r', priority: -2_000_000_000, version: 2_000_000_000 },
      {
        workflows: [{ name: 'report', version: 2_000_000_000 }],
      },
    )
    expect(claim.run).toMatchObject({ priority: -2_000_000_000, version: 2_000_000_000 })
    const at = 4_102_444_800_000
    await scene.write(claim, {
      events: [event('step_completed', { step: 's', at, durationMs: 86_400_000_000, count: 1_000_000, attempt: 99 })],
    })
    const [record] = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(record).toMatchObject({ at, durationMs: 86_400_000_000, count: 1_000_000, attempt: 99 })
  })
}
