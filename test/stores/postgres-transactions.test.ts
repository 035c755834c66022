import { type Holdfast, open, type SqlTransaction, workflow } from 'holdfast'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { usePostgres } from './postgres-scene.ts'

const scene = usePostgres()

/** Executes a body in a transaction of a step, once. */
async function transact(url: string, body: (tx: SqlTransaction) => Promise<unknown>): Promise<unknown> {
  const pay = workflow('pay', (ctx) => ctx.transaction('pay', body))
  const hf: Holdfast = await open(url, { workflows: [pay], logger: false })
  try {
    return await hf.run('pay', undefined)
  } finally {
    await hf.close()
  }
}

async function withTable(searchPath = 'public'): Promise<string> {
  const url = await scene.ownDatabase()
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = ${searchPath}`)
  await client.query('CREATE SCHEMA shop; CREATE TABLE shop.orders (id int, total int); INSERT INTO shop.orders VALUES (1, 5)')
  await client.end()
  return `${url}?schema=holdfast`
}

describe('the body of a transaction', () => {
  it('may use the name of the schema as an alias, and as a part of other names', async () => {
    const url = await withTable()
    const totals = await transact(url, async (tx) => [
      ...(await tx.query('SELECT holdfast.total FROM shop.orders holdfast')),
      ...(await tx.query('SELECT my_holdfast.total FROM shop.orders AS my_holdfast')),
      ...(await tx.query(`SELECT "holdfast"."total", 'holdfast.runs' AS text FROM shop.orders AS "holdfast"`)),
    ])
    expect(totals).toEqual([{ total: 5 }, { total: 5 }, { total: 5, text: 'holdfast.runs' }])
  })

  it.each([
    'SELECT * FROM holdfast.runs',
    'SELECT * FROM "holdfast" . "runs"',
    'DELETE FROM HOLDFAST.log',
    'WITH x AS (SELECT 1) INSERT INTO holdfast.version SELECT 1',
  ])('is refused: %s', async (sql) => {
    const url = await withTable()
    expect(await codeOfRejection(transact(url, (tx) => tx.query(sql)))).toBe('run_failed')
    await expect(transact(url, (tx) => tx.query(sql))).rejects.toThrow(/tables of Holdfast/)
  })

  it.each([
    ['the search path of the database', 'holdfast, shop', []],
    ['one that it sets', 'public', ["SELECT set_config('search_path', 'hold' || 'fast', true)"]],
    ['one that it sets, by another statement', 'public', ['SET LOCAL search_path = holdfast']],
  ])('changes no table of the store by %s', async (_, searchPath, before) => {
    const url = await withTable(searchPath)
    const attack = async (tx: SqlTransaction) => {
      for (const sql of before) await tx.query(sql)
      return tx.query('UPDATE threads SET head_seq = 100')
    }
    await expect(transact(url, attack)).rejects.toThrow(/tables of Holdfast/)
    const hf = await open(url, { worker: false })
    const { items } = await hf.runs.list()
    expect(items).toHaveLength(1)
    expect((await (await hf.runs.get(items[0]!.id)).events()).length).toBeLessThan(20)
    await hf.close()
  })

  it('may use tables of its own on a search path that the store is on, too', async () => {
    const url = await withTable('holdfast, shop')
    expect(await transact(url, (tx) => tx.query('UPDATE orders SET total = total + 1 RETURNING total'))).toEqual([{ total: 6 }])
  })

  it('that makes its transaction read-only fails, and is not tried for ever', async () => {
    const url = await withTable()
    await expect(transact(url, (tx) => tx.query('SET TRANSACTION READ ONLY'))).rejects.toThrow(/read-only by its body/)
    await expect(
      transact(url, async (tx) => {
        await tx.query('SET TRANSACTION READ ONLY')
        await tx.query('UPDATE shop.orders SET total = 0')
      }),
    ).rejects.toThrow(/read-only by its body/)
  })
})

it.each(['holdfast.v2', 'holdfast.fn_x', 'My Schema-1'])('the schema %s works like any other', async (name) => {
  const url = `${await scene.ownDatabase()}?schema=${encodeURIComponent(name)}`
  expect(await transact(url, (tx) => tx.query('SELECT 1 AS one'))).toEqual([{ one: 1 }])
  await expect(transact(url, (tx) => tx.query(`SELECT * FROM "${name}".runs`))).rejects.toThrow(/tables of Holdfast/)
})

it('a text with NUL is invalid_input or finds nothing, wherever it is asked for', async () => {
  const hf = await open(`${scene.url}?schema=${scene.schema}`, { worker: false })
  scene.afterwards(() => hf.close())
  const codes = await Promise.all([
    codeOfRejection(hf.runs.list({ queue: 'a\0b' })),
    codeOfRejection(hf.runs.list({ workflow: 'a\0b' })),
    codeOfRejection(hf.queues.get('a\0b')),
  ])
  expect(codes.filter((code) => code !== 'invalid_input' && code !== 'invalid_id' && code !== 'nothing was thrown')).toEqual([])
})

it('a URL that can not be read does not show its password', async () => {
  for (const url of ['postgres:/u:PW@h/db', 'postgres:u:PW@h', 'pg://u:PW@h/x@y', 'postgres:/h?user=u&password=PW']) {
    await expect(open(url)).rejects.toMatchObject({ code: 'invalid_url', message: expect.not.stringContaining('PW') })
  }
})
