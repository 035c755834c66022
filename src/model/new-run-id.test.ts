import { describe, expect, test } from 'vitest'
import { newRunId } from './new-run-id.ts'

describe('the id of a run that was given none', () => {
  test('is a UUID of version 7 that begins with the time', () => {
    const before = Date.now()
    const id = newRunId()
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    const at = Number.parseInt(id.slice(0, 13).replace('-', ''), 16)
    expect(at).toBeGreaterThanOrEqual(before)
    expect(at).toBeLessThanOrEqual(Date.now())
  })

  test('is another one each time', () => {
    expect(new Set(Array.from({ length: 10_000 }, newRunId)).size).toBe(10_000)
  })
})
