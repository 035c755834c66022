import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import BetterSqlite3 from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Claim, RunQuery, SqlTransaction, Store } from '../../src/store/store.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { fewOpenRuns } from '../../src/stores/sqlite/list-runs.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { compareStores, createTestClock } from '../../src/testing/index.ts'
import { listAllRuns } from '../../src/testing/store-contents.ts'
import { testStore } from '../../src/testing/store-suite/index.ts'
import { patience } from '../patience.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

testStore('sqlite', {
  open: async ({ clockOffsetMs }) => {
    const folder = newFolder()
    const open = () => openSqliteStore({ file: join(folder, 'test.db'), durability: 'full', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: async () => {
        await store.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
})

testStore("sqlite on a user's handle", {
  parts: ['creating', 'claiming', 'leases', 'commits', 'operations', 'inbox', 'concurrency'],
  open: async ({ clockOffsetMs }) => {
    const folder = newFolder()
    const database = new BetterSqlite3(join(folder, 'test.db'))
    database.defaultSafeIntegers(true)
    const open = () => openSqliteStore({ database, durability: 'relaxed', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: async () => {
        await store.close()
        database.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
})

testStore('sqlite in memory', {
  // One connection for reads and writes, as on a user's handle.
  parts: ['leases', 'commits', 'concurrency'],
  open: async ({ clockOffsetMs }) => {
    const store = await openSqliteStore({ durability: 'full', clockOffsetMs })
    return { store, close: () => store.close() }
  },
})

describe('sqlite', () => {
  let folder: string
  let store: Store

  beforeEach(async () => {
    folder = newFolder()
    store = await openSqliteStore({ file: join(folder, 'test.db'), durability: 'full' })
    await store.migrate()
  })

  afterEach(async () => {
    await store.close()
    rmSync(folder, { recursive: true })
  })

  it('lists open runs newest first, also where they are too many to be sorted', async () => {
    const ids = Array.from({ length: fewOpenRuns + 20 }, (_, index) => `r-${index}`)
    const workflowOf = (index: number) => (index % 3 === 0 ? 'mail' : 'report')
    await store.commit(ids.map((id, index) => creating(id, { workflow: workflowOf(index), queue: `q${index % 2}` })))
    const [claim] = await store.claim(claimRequest({ limit: 1 }))
    const failed = stepping(claim as Claim, { run: { status: 'failed', setsEnd: true } })
    await store.commit([failed])
    const newest = async (query: Partial<RunQuery>) =>
      (await store.listRuns({ owner: '', statuses: ['pending', 'failed'], limit: 5, ...query })).items.map(({ id }) => id)
    const numbers = [...ids.keys()].toReversed()
    const expected = (fits: (index: number) => boolean) =>
      numbers
        .filter(fits)
        .slice(0, 5)
        .map((index) => ids[index])
    expect(await newest({})).toEqual(expected(() => true))
    expect(await newest({ workflow: 'mail' })).toEqual(expected((index) => workflowOf(index) === 'mail'))
    expect(await newest({ queue: 'q1', withoutPrefix: 'ma' })).toEqual(
      expected((index) => index % 2 === 1 && workflowOf(index) !== 'mail'),
    )
    const oldest = await listAllRuns(store, { owner: '', statuses: ['pending', 'failed'], limit: 500 })
    expect(oldest.map(({ id }) => id)).toEqual(ids.toReversed())
  })

  it('does what the memory store does, whatever the seed', { timeout: patience(120_000) }, async () => {
    for (const seed of [1, 2]) {
      const clock = createTestClock()
      const candidate = await openSqliteStore({ file: join(folder, `seed-${seed}.db`), durability: 'relaxed', ...clock })
      await candidate.migrate()
      await compareStores(keepingLeases(createMemoryStore(clock)), keepingLeases(candidate), {
        seed,
        operations: 1_500,
        clock,
        checkEvery: 500,
      })
      await candidate.close()
    }
  })

  it('keeps a lease as it is while two thirds are left, and extends it after', async () => {
    let offsetMs = 0
    const timed = await openSqliteStore({ file: join(folder, 'timed.db'), durability: 'full', clockOffsetMs: () => offsetMs })
    await timed.migrate()
    const claim = await createAndClaim(timed, 'r')
    const leaseUntil = async () => (await timed.readRun({ owner: '', runId: 'r' }))?.leaseUntil ?? 0
    const first = await leaseUntil()
    await timed.commit([stepping(claim, { run: { hasProgress: true, leaseMs: 60_000 } })])
    expect(await leaseUntil()).toBe(first)
    offsetMs = 30_000
    await timed.commit([stepping(claim, { run: { hasProgress: true, leaseMs: 60_000 } })])
    expect((await leaseUntil()) - first).toBeGreaterThanOrEqual(30_000)
    // The index moved with it: the run is not taken at the end of its first lease.
    offsetMs = 61_000
    expect(await timed.claim(claimRequest())).toEqual([])
    offsetMs = 95_000
    expect((await timed.claim(claimRequest())).length).toBe(1)
    await timed.close()
  })

  it('reads any stretch of a long log', async () => {
    const claim = await createAndClaim(store, 'long')
    for (let i = 0; i < 20; i++) {
      const events = Array.from({ length: 37 }, (_, j) =>
        event('step_completed', { step: `s${i}.${j}`, payload: `${i * 37 + j}` }),
      )
      await store.commit([stepping(claim, { events })])
    }
    const all = await store.readLog({ owner: '', threadId: 'long' })
    expect(all.map(({ seq }) => seq)).toEqual(Array.from({ length: 741 }, (_, i) => i + 1))
    for (const [afterSeq, toSeq] of [
      [0, 1],
      [0, 31],
      [0, 32],
      [0, 33],
      [31, 32],
      [100, 100],
      [63, 640],
      [700, 741],
      [740, 9_999],
      [741, 800],
    ] as const) {
      const found = await store.readLog({ owner: '', threadId: 'long', afterSeq, toSeq })
      expect(found).toEqual(all.slice(afterSeq, toSeq))
    }
    expect((await store.listCheckpoints({ owner: '', threadId: 'long' })).length).toBe(21)
    expect((await store.listCheckpoints({ owner: '', threadId: 'long', afterSeq: 500, limit: 2 })).map(({ seq }) => seq)).toEqual(
      [519, 556],
    )
  })

  it('finds what is due without passing over timers that are not', async () => {
    const changes = Array.from({ length: 5_000 }, (_, i) =>
      creating(`later-${i}`, { due: { inMs: 3_600_000 + i }, priority: i % 3 }),
    )
    await store.commit(changes)
    await store.claim(claimRequest())
    const startedAt = performance.now()
    for (let i = 0; i < 200; i++) expect(await store.claim(claimRequest())).toEqual([])
    // 200 scans of 5,000 timers would take seconds.
    expect(performance.now() - startedAt).toBeLessThan(patience(1_000))
    await store.commit([creating('now', { priority: -5 })])
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['now'])
  })

  it('hears of what another connection writes', async () => {
    const other = await openSqliteStore({ file: join(folder, 'test.db'), durability: 'full' })
    const heard = new Promise((resolve) => store.subscribe?.(resolve))
    await other.commit([creating('elsewhere')])
    expect(await heard).toEqual({ isClaimable: true })
    await other.close()
  })

  it('tells of its own writes once', async () => {
    const hints: unknown[] = []
    store.subscribe?.((hint) => hints.push(hint))
    await store.commit([creating('here')])
    await new Promise((done) => setTimeout(done, 100))
    expect(hints.filter((hint) => (hint as { runId?: string }).runId === 'here').length).toBe(1)
    expect(hints.filter((hint) => Object.keys(hint as object).length === 1)).toEqual([])
  })

  describe('transact', () => {
    const rows = async (sql: string) => {
      const db = new DatabaseSync(join(folder, 'test.db'))
      try {
        return db.prepare(sql).all()
      } finally {
        db.close()
      }
    }
    const transact = async (body: (tx: SqlTransaction, step: Change) => Promise<Change>, timeoutMs = 5_000) => {
      const claim = await createAndClaim(store, 'r')
      const guarded = { owner: '', runId: 'r', threadId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId, timeoutMs }
      return { claim, guarded, answer: await store.transact?.(guarded, (tx) => body(tx, stepping(claim))) }
    }
    const steps = async () => (await store.readLog({ owner: '', threadId: 'r', types: ['step_completed'] })).length

    beforeEach(async () => {
      const db = new DatabaseSync(join(folder, 'test.db'))
      db.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE)')
      db.close()
    })

    it("writes the user's tables and the checkpoint together", async () => {
      const { answer } = await transact(async (tx, step) => {
        expect(await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])).toEqual([])
        expect(await tx.query('SELECT item FROM orders')).toEqual([{ item: 'tea' }])
        // Nobody else sees it yet.
        expect(await steps()).toBe(0)
        expect(await rows('SELECT * FROM orders')).toEqual([])
        return step
      })
      expect(answer?.ok).toBe(true)
      expect(await rows('SELECT item FROM orders')).toEqual([{ item: 'tea' }])
      expect(await steps()).toBe(1)
    })

    it('writes nothing when the body throws', async () => {
      const failing = transact(async (tx) => {
        await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])
        throw new Error('changed my mind')
      })
      await expect(failing).rejects.toThrow('changed my mind')
      expect(await rows('SELECT * FROM orders')).toEqual([])
      expect(await steps()).toBe(0)
      expect((await store.commit([creating('after')]))[0]?.ok).toBe(true)
    })

    it('writes nothing when the change is refused, and does not begin without the lease', async () => {
      const { guarded, claim, answer } = await transact(async (tx, step) => {
        await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])
        return { ...step, guard: { kind: 'lease', epoch: 77, leaseId: 'stale' } }
      })
      expect(answer).toEqual({ ok: false, refusal: 'lease_lost' })
      expect(await rows('SELECT * FROM orders')).toEqual([])
      let hasRun = false
      const stale = await store.transact?.({ ...guarded, leaseId: 'stale' }, async () => {
        hasRun = true
        return stepping(claim)
      })
      expect(stale).toEqual({ ok: false, refusal: 'lease_lost' })
      expect(hasRun).toBe(false)
    })

    it('is rolled back when it takes too long, and refuses late queries', async () => {
      let late: Promise<unknown> | undefined
      const slow = transact(async (tx, step) => {
        await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])
        late = new Promise((resolve) => setTimeout(resolve, 150)).then(() =>
          tx.query('INSERT INTO orders (item) VALUES (?)', ['late']),
        )
        late.catch(() => {})
        await late
        return step
      }, 50)
      await expect(slow).rejects.toMatchObject({ code: 'timeout' })
      await expect(late).rejects.toMatchObject({ code: 'closed' })
      expect(await rows('SELECT * FROM orders')).toEqual([])
      expect(await steps()).toBe(0)
    })

    it('lets other commits of this process wait in line', async () => {
      const order: string[] = []
      let other: Promise<unknown> | undefined
      await transact(async (tx, step) => {
        other = store.commit([creating('other')]).then(() => order.push('commit'))
        await new Promise((done) => setTimeout(done, 50))
        await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])
        order.push('transaction')
        return step
      })
      await other
      expect(order).toEqual(['transaction', 'commit'])
    })

    it.each([
      'BEGIN',
      'commit',
      '-- a remark\n ROLLBACK',
      '/* a */ SAVEPOINT x',
      'PRAGMA synchronous = OFF',
      `ATTACH ':memory:' AS x`,
      'DELETE FROM holdfast_runs',
      'SELECT * FROM "Holdfast_log"',
      'INSERT INTO orders (item) VALUES (1); COMMIT',
    ])('refuses %s', async (sql) => {
      await expect(transact(async (tx, step) => tx.query(sql).then(() => step))).rejects.toThrow()
      expect(await steps()).toBe(0)
      expect((await store.commit([creating('after')]))[0]?.ok).toBe(true)
    })

    it('notices a statement that rolled the transaction back', async () => {
      const failing = transact(async (tx, step) => {
        await tx.query('INSERT INTO orders (item) VALUES (?)', ['tea'])
        await tx.query('INSERT OR ROLLBACK INTO orders (item) VALUES (?)', ['tea']).catch(() => {})
        return step
      })
      await expect(failing).rejects.toMatchObject({ code: 'invalid_input' })
      expect(await steps()).toBe(0)
      expect(await rows('SELECT * FROM orders')).toEqual([])
    })
  })
})

/** Without the wish to extend a lease: this store extends it a little later than the memory store, which is allowed. */
function keepingLeases(store: Store): Store {
  return {
    ...store,
    commit: (changes) =>
      store.commit(
        changes.map((change) => {
          if (change.run === undefined) return change
          const { leaseMs: _, ...run } = change.run
          return { ...change, run }
        }),
      ),
  }
}

function newFolder(): string {
  return mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
}
