import { randomBytes } from 'node:crypto'
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import pg from 'pg'
import { afterAll, describe, expect, it } from 'vitest'
import { sharedPostgres } from '../servers/postgres.ts'
import { defects } from './defects.ts'

// That the tests of defects can fail: what they find in the savers that LangGraph publishes. One that is mended there shows up here.
const pools: pg.Pool[] = []

afterAll(async () => {
  for (const pool of pools) await pool.end()
})

const official = {
  sqlite: async () => SqliteSaver.fromConnString(':memory:'),
  postgres: async () => {
    const { url } = await sharedPostgres()
    const pool = new pg.Pool({ connectionString: url })
    pools.push(pool)
    const saver = new PostgresSaver(pool, undefined, { schema: `official_${randomBytes(4).toString('hex')}` })
    await saver.setup()
    return saver
  },
}

for (const name of ['sqlite', 'postgres'] as const) {
  describe(`the official saver for ${name}`, () => {
    for (const { sentence, isRight, wrongOn } of defects) {
      it(`${wrongOn.includes(name) ? 'gets this wrong' : 'gets this right'}: ${sentence}`, async () => {
        const outcome = isRight(await official[name]())
        if (wrongOn.includes(name)) await expect(outcome).rejects.toThrow()
        else await outcome
      })
    }
  })
}
