import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { payloadChecksum, recordChecksum, sealChecksum, verifyChecksum } from './checksum.ts'
import type { LogRecord } from './event.ts'
import type { Payload } from './payload.ts'

const place = { owner: 'ann', threadId: 'thread-1' }

const record: Omit<LogRecord, 'seq'> = {
  ...{ runId: 'run-1', type: 'step_completed', step: 'load', count: 1, attempt: 2, at: 1_800_000_000_000, durationMs: 12 },
  ...{ payload: '{"balance":1000}', patch: null, isCheckpoint: true },
}

describe('recordChecksum', () => {
  it('depends on everything that a record says and on where it belongs', () => {
    const sums = [
      recordChecksum(place, record),
      recordChecksum({ ...place, owner: '' }, record),
      recordChecksum({ ...place, threadId: 'thread-2' }, record),
      ...(
        [
          { runId: null },
          { runId: 'run-2' },
          { type: 'step_failed' },
          { step: null },
          { step: 'save' },
          { count: 2 },
          { attempt: 1 },
          { at: 1_800_000_000_001 },
          { durationMs: null },
          { durationMs: 0 },
          { payload: null },
          { payload: '' },
          { payload: Buffer.from('{"balance":1000}') },
          { payload: '{"balance":9000}' },
          { patch: '' },
          { payload: null, patch: '{"balance":1000}' },
          { isCheckpoint: false },
        ] as const
      ).map((fields) => recordChecksum(place, { ...record, ...fields })),
    ]
    expect(new Set(sums).size).toBe(sums.length)
  })

  it('does not take one text for another that was cut elsewhere', () => {
    const sums = [
      recordChecksum({ ...place, owner: 'ab', threadId: 'c' }, record),
      recordChecksum({ ...place, owner: 'a', threadId: 'bc' }, record),
      recordChecksum({ ...place, owner: 's1:a', threadId: 'bc' }, record),
      recordChecksum(place, { ...record, runId: 'a', step: 'bc' }),
      recordChecksum(place, { ...record, runId: 'ab', step: 'c' }),
      recordChecksum(place, { ...record, payload: 'ab', patch: 'c' }),
      recordChecksum(place, { ...record, payload: 'a', patch: 'bc' }),
      recordChecksum(place, { ...record, payload: 'n', patch: null }),
      recordChecksum(place, { ...record, payload: null, patch: 'n' }),
    ]
    expect(new Set(sums).size).toBe(sums.length)
  })

  it('finds every flipped bit of a payload and of a patch, short or long, text or bytes', () => {
    const long = 'x'.repeat(5_000)
    for (const payload of ['{"balance":1000}', new Uint8Array(64).fill(7), long] satisfies Payload[]) {
      const whole = recordChecksum(place, { ...record, payload, patch: payload })
      const bytes = Buffer.from(payload)
      for (let bit = 0; bit < Math.min(bytes.length * 8, 2_000); bit++) {
        const damaged = Buffer.from(bytes)
        damaged[bit >> 3] = (damaged[bit >> 3] ?? 0) ^ (1 << (bit & 7))
        const found = typeof payload === 'string' ? damaged.toString() : damaged
        expect(recordChecksum(place, { ...record, payload: found, patch: payload })).not.toBe(whole)
        expect(recordChecksum(place, { ...record, payload, patch: found })).not.toBe(whole)
      }
    }
  })

  it('stays what it was: stored records carry it', () => {
    const head = 's3:anns8:thread-1s5:run-1s4:loadstep_completed,1,2,1800000000000,12,1,'
    for (const payload of ['{"balance":1000}', 'é日🦞', 'y'.repeat(4_096), 'y'.repeat(4_097)]) {
      const expected = crc32(`${head}s${payload.length}:${payload}n`)
      expect(recordChecksum(place, { ...record, payload })).toBe(expected)
    }
    const bytes = new Uint8Array([1, 2, 3])
    expect(recordChecksum(place, { ...record, payload: bytes })).toBe(crc32('n', crc32(bytes, crc32(`${head}b3:`))))
  })
})

it('a sealed checksum belongs to one position', () => {
  const sums = [0, 1, 2, 4_294_967_295].map((seq) => sealChecksum(recordChecksum(place, record), seq))
  expect(new Set(sums).size).toBe(sums.length)
  for (const sum of sums) expect(sum).toBeGreaterThanOrEqual(0)
})

it('a payload that stands by itself is bound to its place', () => {
  const sums = [
    payloadChecksum(['snapshot', 'a', 1], '{}'),
    payloadChecksum(['snapshot', 'a', 2], '{}'),
    payloadChecksum(['snapshot', 'a1'], '{}'),
    payloadChecksum(['snapshot', 'a', 1], null),
    payloadChecksum(['snapshot', 'a', 1], Buffer.from('{}')),
  ]
  expect(new Set(sums).size).toBe(sums.length)
})

it('damage is refused by name', () => {
  expect(() => verifyChecksum(1, 1, 'Record t@1')).not.toThrow()
  expect(() => verifyChecksum(1, 2, 'Record t@1')).toThrow(expect.objectContaining({ code: 'corrupt_record' }))
})
