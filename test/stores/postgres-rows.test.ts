import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import type { Claim } from '../../src/store/store.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { codeOf, usePostgres } from './postgres-scene.ts'
import { claimRequest, createAndClaim, creating, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

describe('what the server sees', () => {
  it('one statement a step, alone and in a batch, and none that announces it', async () => {
    const { logFile } = await sharedPostgres()
    const own = await scene.ownDatabase({ log_statement: 'all' })
    const store = await scene.open({ url: own })
    const claims = []
    for (let i = 0; i < 50; i++) claims.push(await createAndClaim(store, `r-${i}`))
    const [claim] = claims as [Claim]
    const marker = `marker ${randomBytes(8).toString('hex')}`
    const client = new pg.Client({ connectionString: own })
    await client.connect()
    await client.query(`SELECT '${marker} begin'`)
    for (let i = 0; i < 100; i++) await store.commit([stepping(claim)])
    for (let i = 0; i < 10; i++) await store.commit(claims.map((one) => stepping(one)))
    await client.query(`SELECT '${marker} end'`)
    await client.end()
    const log = await vi.waitFor(() => {
      const text = readFileSync(logFile, 'utf8')
      expect(text).toContain(`${marker} end`)
      return text
    })
    const between = log.slice(log.indexOf(`${marker} begin`), log.indexOf(`${marker} end`))
    const statements = between
      .split('\n')
      .filter((line) => /LOG: {2}(statement|execute)/.test(line) && line.includes(scene.schema))
    expect(statements).toHaveLength(110)
    const all = between.split('\n').filter((line) => /LOG: {2}(statement|execute)/.test(line) && line.includes('pg_notify'))
    expect(all.filter((line) => line.includes(scene.schema))).toEqual([])
  })

  it('damage is corrupt_record, never other data', async () => {
    const store = await scene.open()
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim, { snapshot: '{"a":1}', operation: { kind: 'intend', key: 'k', name: 'n' } })])
    await store.commit([stepping(claim, { operation: { kind: 'complete', key: 'k', result: '"paid"' } })])
    await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: null, payload: '"mail"' })
    const chunks = { stream: 's', tape: 1, step: 'a', count: 1, attempt: 1, size: 1, payload: '["a"]' }
    await store.commit([stepping(claim, { chunks: [chunks] })])
    const reads: Record<string, () => Promise<unknown>> = {
      log: () => store.readLog({ owner: '', threadId: 'r' }),
      snapshots: () => store.readSnapshot({ owner: '', threadId: 'r', atSeq: 9 }),
      operations: () => store.readOperation({ owner: '', key: 'k' }),
      inbox: () => store.readInbox({ owner: '', runId: 'r' }),
      chunks: () => store.readChunks({ owner: '', runId: 'r', stream: 's', from: 0, limit: 1 }),
    }
    const columns: Record<string, string> = {
      ...{ log: 'payload', snapshots: 'state', operations: 'result', inbox: 'payload', chunks: 'payload' },
    }
    for (const [table, read] of Object.entries(reads)) {
      expect([table, await codeOf(read())]).toEqual([table, 'none'])
      await scene.admin.query(`UPDATE "${scene.schema}".${table} SET ${columns[table]} = ${columns[table]} || ' '`)
      expect([table, await codeOf(read())]).toEqual([table, 'corrupt_record'])
      await scene.admin.query(`UPDATE "${scene.schema}".${table} SET ${columns[table]} = rtrim(${columns[table]})`)
    }
  })

  it('a record that is missing is corrupt_record, also among those that a query passes over', async () => {
    const store = await scene.open()
    const claim = await createAndClaim(store, 'r')
    for (let i = 0; i < 6; i++) await store.commit([stepping(claim)])
    const at = { owner: '', threadId: 'r' }
    for (const seq of [1, 3, 7]) {
      await scene.admin.query(
        `CREATE TABLE "${scene.schema}".kept AS SELECT * FROM "${scene.schema}".log WHERE seq = ${seq}; DELETE FROM "${scene.schema}".log WHERE seq = ${seq}`,
      )
      for (const query of [{}, { types: ['run_queued' as const] }, { runId: 'nobody' }, { patchesOnly: true }, { bare: true }]) {
        expect([seq, query, await codeOf(store.readLog({ ...at, ...query }))]).toEqual([seq, query, 'corrupt_record'])
      }
      await scene.admin.query(
        `INSERT INTO "${scene.schema}".log SELECT * FROM "${scene.schema}".kept; DROP TABLE "${scene.schema}".kept`,
      )
    }
    expect(await store.readLog(at)).toHaveLength(7)
    expect(await codeOf(store.readLog({ ...at, limit: 2 }))).toBe('none')
  })

  it('a run whose input is damaged is set aside, and keeps no other from being claimed', async () => {
    const store = await scene.open()
    await store.commit([creating('broken'), creating('good')])
    await scene.admin.query(
      `UPDATE "${scene.schema}".log SET payload = 'x' WHERE thread = (SELECT id FROM "${scene.schema}".threads WHERE thread_id = 'broken')`,
    )
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['good'])
    expect(await store.readRun({ owner: '', runId: 'broken' })).toMatchObject({
      status: 'paused',
      reason: 'poisoned',
      leaseId: null,
    })
    expect(await store.claim(claimRequest())).toEqual([])
  })
})
