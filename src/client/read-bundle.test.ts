import { expect, it } from 'vitest'
import { HoldfastError } from '../model/errors.ts'
import { hasExpired } from '../model/record.ts'
import { readWholeThread } from '../store/read-whole-thread.ts'
import { createMemoryStore } from '../stores/memory/memory-store.ts'
import { readContent } from './read-bundle.ts'
import { type BundleContent, digestOf, toBundle } from './thread-bundle.ts'

const oddValues = [
  undefined,
  null,
  '',
  'x',
  'a\0b',
  '\ud800',
  -1,
  0,
  1.5,
  2 ** 60,
  Number.NaN,
  true,
  [],
  {},
  [null],
  { base64: 7 },
]

it('a content with any one field replaced by something odd is refused with a code, or is a thread that a store takes and gives back', async () => {
  const content = await exampleContent()
  let refused = 0
  let taken = 0
  for (const path of pathsOf(content)) {
    for (const odd of oddValues) {
      const spoilt = structuredClone(content)
      replaceAt(spoilt, path, odd)
      try {
        const whole = readContent(spoilt, 'ann')
        const store = createMemoryStore()
        expect(await store.restoreThread(whole)).toEqual({ ok: true })
        const back = await readWholeThread(store, whole.thread)
        const records = whole.records.filter((record) => !hasExpired(record, Date.now()))
        expect(back === null ? null : digestOf(back)).toBe(digestOf({ ...whole, records }))
        taken += 1
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error
        expect(['invalid_input', 'invalid_id']).toContain(error.code)
        refused += 1
      }
    }
  }
  expect(refused).toBeGreaterThan(taken)
  expect(taken).toBeGreaterThan(0)
})

it('a record that no store would have written is refused', async () => {
  const content = await exampleContent()
  const strange: readonly object[] = [
    ...[
      { collection: '' },
      { collection: 'a\nb' },
      { key: '' },
      { key: 'x'.repeat(1_029) },
      { parent: '' },
      { parent: 'x\np9:6:victims' },
    ],
    ...[{ fields: [{ name: 'a', value: 'b\n' }] }, { fields: [{ name: '', value: 'b' }] }, { parent: 'x'.repeat(513) }],
    ...[{ version: 0 }, { version: -1 }, { createdAt: -1 }, { updatedAt: 9e15 }, { expiresAt: 8.64e15 + 1 }],
  ]
  for (const fields of strange) {
    const spoilt = structuredClone(content) as { records: object[] }
    Object.assign(spoilt.records[0] as object, fields)
    expect(() => readContent(spoilt, 'ann'), JSON.stringify(fields)).toThrow(
      /^The bundle is not one of Holdfast's: content.records\[0\]/,
    )
  }
})

async function exampleContent(): Promise<BundleContent> {
  const store = createMemoryStore()
  const at = 1_700_000_000_000
  const plain = { step: null, count: 0, attempt: 0, at, durationMs: null, patch: null }
  await store.commit([
    {
      ...{ owner: '', threadId: 't', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true },
      creates: [
        {
          ...{ owner: '', id: 'r', threadId: 't', workflow: 'w', version: 1, queue: 'q', priority: 0, fingerprint: 'f' },
          ...{ due: { inMs: 0 }, ifBusy: 'queue', queued: { ...plain, type: 'run_queued', payload: new Uint8Array([1, 2]) } },
        },
      ],
    },
    {
      ...{ owner: '', threadId: 't', runId: 'r', guard: { kind: 'none' }, isCheckpoint: true, label: 'here', snapshot: '{}' },
      events: [{ ...plain, type: 'state_updated', payload: null, patch: '[]' }],
      operation: { kind: 'intend', key: 'k', name: 'send' },
    },
  ])
  await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: 'go', payload: '1' })
  const place = { collection: 'session', key: `512:${'t'.repeat(512)}${'k'.repeat(512)}`, parent: 't'.repeat(512), threadId: 't' }
  const put = { kind: 'put', ...place, fields: [{ name: 'tag', value: 'x' }], payload: '1', expires: { at: at * 2 } } as const
  await store.commit([
    { ...{ owner: '', threadId: 't', runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: false }, records: [put] },
  ])
  const whole = await readWholeThread(store, { owner: '', threadId: 't' })
  if (whole === null) throw new Error('the example is missing')
  return JSON.parse(JSON.stringify(toBundle(whole).content)) as BundleContent
}

function pathsOf(value: unknown, path: readonly (string | number)[] = []): (string | number)[][] {
  const inside =
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([name, inner]) => pathsOf(inner, [...path, Array.isArray(value) ? Number(name) : name]))
      : []
  return path.length === 0 ? inside : [[...path], ...inside]
}

function replaceAt(content: unknown, path: readonly (string | number)[], odd: unknown): void {
  let holder = content as Record<string | number, unknown>
  for (const name of path.slice(0, -1)) holder = holder[name] as Record<string | number, unknown>
  holder[path.at(-1) as string | number] = odd
}
