import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import BetterSqlite3 from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { codeOf } from '../../src/model/errors.ts'
import type { Store } from '../../src/store/store.ts'
import { Connection } from '../../src/stores/sqlite/connection.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { patience } from '../patience.ts'
import { countSyncs, run, runOnSmallDisk, start } from './sqlite-processes.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

describe('sqlite: durability', () => {
  it('every connection uses WAL and synchronous=FULL, also on an existing file', async () => {
    for (let time = 0; time < 2; time++) {
      const connection = await Connection.open({ file, durability: 'full' })
      for (const db of [connection.writer, connection.reader]) {
        expect(db.pragma('journal_mode')).toBe('wal')
        expect(db.pragma('synchronous')).toBe(2)
      }
      await connection.close()
    }
    const database = new BetterSqlite3(file)
    database.pragma('synchronous = OFF')
    const store = await openSqliteStore({ database, durability: 'full' })
    expect(database.pragma('synchronous', { simple: true })).toBe(2)
    await store.close()
    database.close()
  })

  it('a hundred commits reach the disk a hundred times, on a new file and on an existing one', async () => {
    expect(await countSyncs('steps', file, 'full,100')).toBeGreaterThanOrEqual(100)
    expect(await countSyncs('steps', file, 'full,100')).toBeGreaterThanOrEqual(100)
  })

  it('relaxed commits reach the disk now and then, intents of effects always', async () => {
    expect(await countSyncs('steps', file, 'relaxed,100')).toBeLessThan(20)
    expect(await countSyncs('steps', file, 'relaxed,100,mustSync')).toBeGreaterThanOrEqual(100)
  })

  it('says how durable it is', async () => {
    const durabilityOf = async (options: Parameters<typeof openSqliteStore>[0]) => {
      const store = await openSqliteStore(options)
      await store.close()
      return store.durability
    }
    expect(await durabilityOf({ file, durability: 'full' })).toBe('full')
    expect(await durabilityOf({ file, durability: 'relaxed' })).toBe('relaxed')
    expect(await durabilityOf({ durability: 'full' })).toBe('none')
  })
})

describe('sqlite: the file', () => {
  it('is created with its folders, for its user alone', async () => {
    const deep = join(folder, 'a', 'b', 'test.db')
    const store = await opened(deep)
    await store.commit([creating('r')])
    expect(modeOf(join(folder, 'a'))).toBe(0o700)
    expect(modeOf(join(folder, 'a', 'b'))).toBe(0o700)
    for (const name of [deep, `${deep}-wal`, `${deep}-shm`]) expect(modeOf(name)).toBe(0o600)
    await store.close()
  })

  it('keeps what was acknowledged when the disk is full, says so, and goes on when there is space', async () => {
    const answer = await runOnSmallDisk('fill', { folder, file, bytes: 4_000_000 })
    expect(answer).toMatchObject({ code: 'storage_full', codeAgain: 'storage_full', hasBallast: false })
    const acknowledged = Number(answer['acknowledged'])
    expect(acknowledged).toBeGreaterThan(5)
    expect(answer).toMatchObject({ readable: acknowledged, afterwards: acknowledged + 10, reread: acknowledged + 10 })
  })

  it('is refused in a folder that cannot be written', async () => {
    const store = await opened(file)
    await store.close()
    chmodSync(file, 0o444)
    chmodSync(folder, 0o555)
    const existing = await run('openAsNobody', file)
    expect(existing).toMatchObject({ code: 'store_unavailable' })
    expect(existing['message']).toContain(file)
    expect(await run('openAsNobody', join(folder, 'new.db'))).toMatchObject({ code: 'store_unavailable' })
    chmodSync(folder, 0o755)
  })

  it('is refused when its tables are of a later library, and left as it is', async () => {
    const store = await opened(file)
    await store.commit([creating('r')])
    await store.close()
    const db = new DatabaseSync(file, { timeout: 5_000 })
    db.prepare('UPDATE holdfast_schema SET version = 99').run()
    db.close()
    const later = await openSqliteStore({ file, durability: 'full' })
    await expect(later.migrate()).rejects.toMatchObject({ code: 'schema_too_new' })
    await later.close()
  })

  it('is refused when it is not a database', async () => {
    writeFileSync(file, 'a shopping list, long enough to be mistaken for a header of a database file, and then some more of it')
    await expect(openSqliteStore({ file, durability: 'full' })).rejects.toMatchObject({ code: 'corrupt_record' })
  })

  it('is refused when its encoding is not UTF-8, in which some texts would come back changed', async () => {
    const made = new DatabaseSync(file)
    made.exec("PRAGMA encoding = 'UTF-16'; CREATE TABLE mine (x)")
    made.close()
    for (const handle of [null, new DatabaseSync(file), new BetterSqlite3(file)]) {
      const opening = openSqliteStore({ ...(handle === null ? { file } : { database: handle }), durability: 'full' })
      await expect(opening).rejects.toMatchObject({ code: 'store_unavailable', message: expect.stringContaining('UTF-16') })
      handle?.close()
    }
  })

  it.each(['removed', 'replaced'])('that was %s under the store takes no more writes', async (what) => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    if (what === 'replaced') {
      const other = join(folder, 'other.db')
      await (await opened(other)).close()
      renameSync(other, file)
    } else for (const name of [file, `${file}-wal`, `${file}-shm`]) rmSync(name)
    expect(await codeWithin(patience(5_000), () => store.commit([stepping(claim)]))).toBe('store_unavailable')
    expect(await codeWithin(patience(5_000), () => store.readRun({ owner: '', runId: 'r' }))).toBe('store_unavailable')
    if (what === 'removed') expect(existsSync(file)).toBe(false)
    await store.close()
  })

  it.each(['its own name', 'a symbolic link'])(
    'whose write-ahead log was removed takes no more writes, opened by %s',
    async (what) => {
      const link = join(folder, 'link', 'store.db')
      if (what === 'a symbolic link') {
        await (await opened(file)).close()
        mkdirSync(dirname(link))
        symlinkSync(file, link)
      }
      const store = await opened(what === 'a symbolic link' ? link : file)
      const claim = await createAndClaim(store, 'r')
      rmSync(`${file}-wal`)
      expect(await codeWithin(patience(5_000), () => store.commit([stepping(claim)]))).toBe('store_unavailable')
      await store.close()
    },
  )

  it('can be opened by twenty processes at once', async () => {
    const ids = Array.from({ length: 20 }, (_, i) => `run-${i}`)
    const answers = await Promise.all(ids.map((id) => run('join', file, id)))
    expect(answers).toEqual(ids.map(() => ({ isWritten: true })))
    const store = await opened(file)
    const { items } = await store.listRuns({ owner: '', limit: 100 })
    expect(items.map(({ id }) => id).sort()).toEqual([...ids].sort())
    await store.close()
  })
})

describe('sqlite: other processes', () => {
  it('a write lock held elsewhere is waited for without blocking the event loop', async () => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    const heldMs = 3_000
    const locker = start('lock', file, String(heldMs))
    await locker.next()
    const startedAt = performance.now()
    const blocked = longestBlock()
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
    expect(performance.now() - startedAt).toBeGreaterThan(heldMs / 2)
    expect(blocked.end()).toBeLessThan(heldMs / 2)
    await locker.kill()
    await store.close()
  })

  it('a write lock held for too long is an error that says so, and nothing is written', async () => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    const locker = start('lock', file, '60000')
    await locker.next()
    await expect(store.commit([stepping(claim)])).rejects.toMatchObject({ code: 'store_unavailable', retryable: true })
    expect((await store.readLog({ owner: '', threadId: 'r' })).length).toBe(1)
    await locker.kill()
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
    await store.close()
  })

  it('runs of a holder that died are claimed at once', async () => {
    const store = await opened(file)
    await store.commit([creating('a'), creating('b')])
    const holder = start('hold', file, 'worker-2')
    expect((await holder.next())['claimed']).toEqual(['a', 'b'])
    expect(await store.claim(claimRequest())).toEqual([])
    await holder.kill()
    const claims = await within(patience(10_000), async () => {
      const found = await store.claim(claimRequest())
      return found.length > 0 ? found : null
    })
    expect(claims.map(({ run }) => run.id)).toEqual(['a', 'b'])
    expect(claims[0]?.takenFrom).toMatchObject({ why: 'holder_died', holder: expect.stringContaining('worker-2') })
    expect(claims[0]?.run).toMatchObject({ epoch: 2, claimsWithoutProgress: 2, leaseHolder: expect.stringContaining('worker-1') })
    await store.close()
  })

  it('runs of a holder that is stopped stay its own', async () => {
    const store = await opened(file)
    await store.commit([creating('a')])
    const holder = start('hold', file, 'worker-2')
    await holder.next()
    holder.process.kill('SIGSTOP')
    const end = performance.now() + 1_500
    while (performance.now() < end) {
      expect(await store.claim(claimRequest())).toEqual([])
      await new Promise((done) => setTimeout(done, 50))
    }
    await holder.kill()
    await store.close()
  })

  it("a user's handle is used, keeps its settings and stays open", async () => {
    const database = new BetterSqlite3(file, { timeout: 1_234 })
    const store = await openSqliteStore({ database, durability: 'full' })
    await store.migrate()
    await store.commit([creating('r')])
    expect(database.pragma('busy_timeout', { simple: true })).toBe(1_234)
    // A transaction that the user left open for a moment is waited for, not joined.
    database.exec('BEGIN; CREATE TABLE mine (x)')
    const pending = store.commit([creating('s')])
    setTimeout(() => database.exec('ROLLBACK'), 50)
    expect((await pending)[0]?.ok).toBe(true)
    await store.close()
    await expect(store.now()).rejects.toMatchObject({ code: 'closed' })
    expect(database.open).toBe(true)
    expect(database.prepare('SELECT count(*) AS runs FROM holdfast_runs').get()).toEqual({ runs: 2 })
    expect(database.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'mine'`).get()).toBeUndefined()
    database.close()
  })
})

describe('sqlite: damage', () => {
  it('two hundred flipped bits in payloads, patches and snapshots are all found', async () => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    for (let i = 0; i < 20; i++) {
      const payload = i % 3 === 0 ? new Uint8Array([...Array(40).keys()]) : JSON.stringify({ balance: 1_000 + i, note: 'é日🦞' })
      const patch = JSON.stringify([{ op: 'replace', path: ['n'], value: i }])
      await store.commit([
        stepping(claim, { events: [event('step_completed', { step: 'pay', payload, patch })], snapshot: `{"n":${i},"s":"x"}` }),
      ])
    }
    const readAll = async () => {
      await store.readLog({ owner: '', threadId: 'r' })
      for (let seq = 2; seq <= 21; seq++) await store.readSnapshot({ owner: '', threadId: 'r', atSeq: seq })
    }
    await readAll()

    const db = new DatabaseSync(file, { timeout: 5_000 })
    const places = [
      ...['payload', 'patch'].map((column) => ({ table: 'holdfast_log', column })),
      { table: 'holdfast_snapshots', column: 'state' },
    ]
    for (let flip = 0; flip < 200; flip++) {
      const { table, column } = places[flip % places.length] as (typeof places)[number]
      const rows = db
        .prepare(
          `SELECT id, typeof(${column}) AS type, CAST(${column} AS BLOB) AS bytes FROM ${table} WHERE ${column} IS NOT NULL`,
        )
        .all()
      const row = rows[Math.floor(Math.random() * rows.length)] as { id: number; type: string; bytes: Uint8Array }
      const bytes = Buffer.from(row.bytes)
      const at = Math.floor(Math.random() * bytes.length)
      const bit = Math.floor(Math.random() * 8)
      bytes[at] = (bytes[at] ?? 0) ^ (1 << bit)
      const write = db.prepare(`UPDATE ${table} SET ${column} = ${row.type === 'text' ? 'CAST(? AS TEXT)' : '?'} WHERE id = ?`)
      write.run(bytes, row.id)
      expect(await codeOfThrown(readAll), `${table}.${column} of ${row.id}, byte ${at}, bit ${bit}`).toBe('corrupt_record')
      write.run(row.bytes, row.id)
    }
    await readAll()
    db.close()
    await store.close()
  })

  const damages = [
    ['a missing record', 'DELETE FROM holdfast_log WHERE seq = 3'],
    ['a missing last record', 'DELETE FROM holdfast_log WHERE seq = 5'],
    ['a record of another type', `UPDATE holdfast_log SET type = 'step_failed' WHERE seq = 3`],
    ['a record of nobody', 'UPDATE holdfast_log SET run = NULL WHERE seq = 3'],
    ['records in another order', 'UPDATE holdfast_log SET seq = CASE seq WHEN 3 THEN 4 ELSE 3 END WHERE seq IN (3, 4)'],
    [
      'another thread under the name',
      `UPDATE holdfast_threads SET thread_id = CASE thread_id WHEN 'r' THEN 'x' WHEN 'other' THEN 'r' ELSE thread_id END`,
    ],
  ] as const
  const link = ['a link to another place', 'UPDATE holdfast_log SET prev = 2 WHERE seq = 5'] as const

  it.each([
    ...damages.map(([what, sql]) => ({ what, sql, isAlone: true })),
    ...[...damages, link].map(([what, sql]) => ({ what, sql, isAlone: false })),
  ])('$what is found (the thread is alone in the log: $isAlone)', async ({ sql, isAlone }) => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    for (let i = 0; i < 4; i++) {
      if (!isAlone) await store.commit([creating(`other-${i}`)])
      const patch = i === 1 ? '[]' : null
      await store.commit([stepping(claim, { events: [event('step_completed', { payload: `${i}`, patch })] })])
    }
    await store.commit([creating('other')])
    damage(sql)
    expect(await codeOfThrown(() => store.readLog({ owner: '', threadId: 'r' }))).toBe('corrupt_record')
    if (sql.startsWith('DELETE'))
      expect(await codeOfThrown(() => store.readLog({ owner: '', threadId: 'r', patchesOnly: true }))).toBe('corrupt_record')
    await store.close()
  })

  it('results of operations and messages are verified too', async () => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim, { operation: { kind: 'intend', key: 'k', name: 'pay' } })])
    await store.commit([stepping(claim, { operation: { kind: 'complete', key: 'k', result: '1000' } })])
    await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: 'go', payload: '1000' })
    damage(`UPDATE holdfast_operations SET result = '9000'; UPDATE holdfast_inbox SET payload = '9000'`)
    expect(await codeOfThrown(() => store.readOperation({ owner: '', key: 'k' }))).toBe('corrupt_record')
    expect(await codeOfThrown(() => store.readInbox({ owner: '', runId: 'r' }))).toBe('corrupt_record')
    await store.close()
  })

  it.each([
    ['a chunk that changed', `UPDATE holdfast_chunks SET payload = '["a","c"]' WHERE first = 2`],
    ['a chunk that became a mark', 'UPDATE holdfast_chunks SET payload = NULL WHERE first = 2'],
    ['chunks of another step', `UPDATE holdfast_chunks SET step = 'b' WHERE first = 2`],
    ['chunks of another stream', `UPDATE holdfast_chunks SET stream = 'tokens' WHERE stream = 'other'`],
    ['chunks in another place', 'UPDATE holdfast_chunks SET first = first + 1 WHERE first = 4'],
    ['missing chunks', 'DELETE FROM holdfast_chunks WHERE first = 2'],
  ])('%s are found', async (_, sql) => {
    const store = await opened(file)
    const claim = await createAndClaim(store, 'r')
    const one = { stream: 'tokens', tape: 1, step: 'a', count: 1, attempt: 1, size: 2, payload: '["a","b"]' }
    await store.commit([stepping(claim, { chunks: [one, one, one, { ...one, stream: 'other' }] })])
    if (sql.includes('other')) damage("DELETE FROM holdfast_chunks WHERE first = 0 AND stream = 'tokens'")
    damage(sql)
    const read = () => store.readChunks({ owner: '', runId: 'r', stream: 'tokens', from: 0, limit: 10 })
    expect(await codeOfThrown(read)).toBe('corrupt_record')
    await store.close()
  })

  it('a run whose input is damaged is set aside and does not keep others from being claimed', async () => {
    const store = await opened(file)
    await store.commit([creating('bad'), creating('good')])
    damage(`UPDATE holdfast_log SET payload = '"other"' WHERE id = (SELECT input_id FROM holdfast_runs WHERE run_id = 'bad')`)
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['good'])
    expect(await store.readRun({ owner: '', runId: 'bad' })).toMatchObject({
      status: 'paused',
      reason: 'poisoned',
      leaseId: null,
      endSeq: 2,
    })
    expect(await store.claim(claimRequest())).toEqual([])
    await store.close()
  })
})

let folder: string
let file: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
  chmodSync(folder, 0o755)
  file = join(folder, 'test.db')
})

afterEach(() => {
  rmSync(folder, { recursive: true, force: true })
})

async function opened(path: string): Promise<Store> {
  const store = await openSqliteStore({ file: path, durability: 'full' })
  await store.migrate()
  return store
}

function damage(sql: string): void {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  db.exec(sql)
  db.close()
}

function modeOf(path: string): number {
  return statSync(path).mode & 0o777
}

async function codeOfThrown(act: () => Promise<unknown>): Promise<string> {
  try {
    await act()
    return 'none'
  } catch (error) {
    return codeOf(error) ?? String(error)
  }
}

/** The first code other than none that the act is refused with. */
function codeWithin(ms: number, act: () => Promise<unknown>): Promise<string> {
  return within(ms, async () => {
    const code = await codeOfThrown(act)
    return code === 'none' ? null : code
  })
}

async function within<Answer>(ms: number, look: () => Promise<Answer | null>): Promise<Answer> {
  for (const end = performance.now() + ms; ; ) {
    const answer = await look()
    if (answer !== null) return answer
    if (performance.now() > end) throw new Error(`nothing within ${ms} ms`)
    await new Promise((done) => setTimeout(done, 20))
  }
}

/** Watches how long the event loop stands still at a time. */
function longestBlock(): { end(): number } {
  let longest = 0
  let last = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
  }, 5)
  return {
    end() {
      clearInterval(timer)
      return Math.max(longest, performance.now() - last)
    },
  }
}
