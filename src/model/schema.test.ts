import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { validate } from './schema.ts'

describe('validate', () => {
  it('returns what the schema makes of the value', () => {
    expect(validate(z.object({ n: z.coerce.number() }), { n: '5' }, 'The input')).toEqual({ n: 5 })
  })

  it('lists the first five issues with their paths', () => {
    const schema = z.object({ items: z.array(z.object({ price: z.number() })) })
    const items = Array.from({ length: 7 }, () => ({ price: 'x' }))
    expect(() => validate(schema, { items }, 'The input of run r1')).toThrow(
      expect.objectContaining({
        code: 'invalid_input',
        message: expect.stringMatching(
          /^The input of run r1 does not match.*\$\.items\[0\]\.price: .*\$\.items\[4\]\.price: .*; and 2 more$/,
        ),
      }),
    )
  })

  it('waits for an asynchronous schema', async () => {
    const schema = z.string().refine(async (text) => text === 'ok', 'must be ok')
    await expect(validate(schema, 'ok', 'It')).resolves.toBe('ok')
    await expect(validate(schema, 'no', 'It')).rejects.toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('$: must be ok'),
    })
  })

  it('reports a schema that throws, and what is no schema', () => {
    const bad = {
      '~standard': {
        version: 1,
        vendor: 'x',
        validate: () => {
          throw new Error('boom')
        },
      },
    } as const
    expect(() => validate(bad, 1, 'It')).toThrow(
      expect.objectContaining({ code: 'invalid_input', message: expect.stringContaining('boom') }),
    )
    expect(() => validate({} as never, 1, 'It')).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  })
})
