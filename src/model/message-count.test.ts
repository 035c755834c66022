// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { messageCountAfter, messageCountOf } from './message-count.ts'
import { applyPatch, diffUpdate } from './patch.ts'

type Chat = { messages?: unknown; other?: unknown }

const acts: readonly ((draft: Chat, n: number) => unknown)[] = [
  (draft, n) =>
    void (Array.isArray(draft.messages) && draft.messages.splice(n % 4, n % 3, ...Array(n % 5).fill({ text: `m${n}` }))),
  (draft) => void (Array.isArray(draft.messages) && draft.messages.reverse()),
  (draft, n) => void (draft.messages = Array.from({ length: n % 6 }, (_, i) => `text ${i} ${n}`)),
  (draft) => void delete draft.messages,
  (draft) => void (draft.messages = 'none'),
  (draft) => void (draft.other = { messages: [1, 2, 3] }),
  (draft, n) => void (Array.isArray(draft.messages) && draft.messages.length > 0 && (draft.messages[0] = { nested: [n, n] })),
  (_, n) => ({ messages: Array.from({ length: n % 7 }, (_item, i) => i) }),
]

test('the number of messages follows from the patches alone', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(acts.length - 1), fc.nat(50)), { maxLength: 12 }), (steps) => {
      let state: unknown = {}
      let count = messageCountOf(state)
      for (const [act, n] of steps) {
        const patch = diffUpdate(state, (draft: Chat) => acts[act]?.(draft, n))
        if (patch === null) continue
        state = applyPatch(state, patch)
        count = messageCountAfter(count, patch)
        expect(count).toBe(messageCountOf(state))
      }
    }),
    { numRuns: 300 },
  )
})
