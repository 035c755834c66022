import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { codeOf, type HoldfastError } from '../../src/model/errors.ts'
import { loadDriver } from '../../src/stores/sqlite/driver.ts'
import { loadBetterSqlite3 } from '../../src/stores/sqlite/driver-better-sqlite3.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

/** A process of its own for the tests of the SQLite store: `node sqlite-process.ts ACT FILE [ARGUMENT]`, answers as lines of JSON. */

const [act = '', file = '', argument = ''] = process.argv.slice(2)

const acts: Record<string, () => Promise<unknown>> = {
  /** Commits one step after another, each alone. */
  async steps() {
    const [durability = 'full', count = '100', mustSync = ''] = argument.split(',')
    const store = await openSqliteStore({ file, durability: durability as 'full' | 'relaxed' })
    await store.migrate()
    const claim = await createAndClaim(store, `run-${process.pid}`)
    for (let i = 0; i < Number(count); i++) await store.commit([stepping(claim, { mustSync: mustSync === 'mustSync' })])
    // Without close(): its checkpoint would flush as well.
    return { written: Number(count) }
  },

  /** Opens and creates one run, as one of many processes that start at once. */
  async join() {
    const store = await openSqliteStore({ file, durability: 'full' })
    await store.migrate()
    const [answer] = await store.commit([creating(argument)])
    await store.close()
    return { isWritten: answer?.ok }
  },

  /** Claims all there is and keeps it until it is killed. */
  async hold() {
    const store = await openSqliteStore({ file, durability: 'full' })
    await store.migrate()
    const claims = await store.claim(claimRequest({ workerId: argument }))
    say({ claimed: claims.map(({ run }) => run.id) })
    return new Promise(() => setInterval(() => {}, 1_000))
  },

  /** Keeps the file's write lock for so many milliseconds. */
  async lock() {
    const db = new DatabaseSync(file, { timeout: 5_000 })
    db.exec('BEGIN IMMEDIATE')
    say({ locked: true })
    await new Promise((done) => setTimeout(done, Number(argument)))
    db.exec('COMMIT')
    return { locked: false }
  },

  async open() {
    try {
      const store = await openSqliteStore({ file, durability: 'full' })
      await store.migrate()
      await store.close()
      return { code: 'none' }
    } catch (error) {
      return { code: codeOf(error) ?? String(error), message: (error as Error).message }
    }
  },

  /** Opens as a user who may write nowhere. Root may write anywhere, so it becomes nobody, after loading what nobody may not read. */
  async openAsNobody() {
    if (process.getuid?.() === 0) process.setuid?.(65_534)
    return acts['open']?.()
  },

  /** Commits until a commit fails, and tells how. `argument` names the driver. */
  async commitUntilItFails() {
    const loaded = argument === 'better-sqlite3' ? await loadBetterSqlite3() : { driver: await loadDriver() }
    if ('reason' in loaded) throw loaded.reason
    const store = await openSqliteStore({ file, durability: 'full', driver: loaded.driver })
    await store.migrate()
    for (let i = 0; i < 200; i++) {
      try {
        await store.commit([creating(`r${i}`)])
      } catch (error) {
        const { code, details } = error as HoldfastError
        return { code, engineCode: details?.['engineCode'] }
      }
    }
    return { code: 'none' }
  },

  /** Writes until the disk is full, reads, frees space, goes on. The file is on a small disk of its own. */
  async fill() {
    const ballast = join(dirname(file), 'ballast')
    writeFileSync(ballast, Buffer.alloc(700_000))
    const store = await openSqliteStore({ file, durability: 'full' })
    await store.migrate()
    const claim = await createAndClaim(store, 'filler')
    const step = () => stepping(claim, { events: [event('step_completed', { payload: JSON.stringify('x'.repeat(20_000)) })] })
    let acknowledged = 0
    let code = 'none'
    while (code === 'none' && acknowledged < 1_000) {
      try {
        await store.commit([step()])
        acknowledged += 1
      } catch (error) {
        code = codeOf(error) ?? String(error)
      }
    }
    const readable = await countSteps(store)
    const codeAgain = await store.commit([step()]).then(
      () => 'none',
      (error) => codeOf(error) ?? String(error),
    )
    rmSync(ballast)
    for (let i = 0; i < 10; i++) await store.commit([step()])
    const afterwards = await countSteps(store)
    await store.close()
    const reopened = await openSqliteStore({ file, durability: 'full' })
    const reread = await countSteps(reopened)
    await reopened.close()
    return { acknowledged, code, codeAgain, readable, afterwards, reread, hasBallast: existsSync(ballast) }
  },
}

async function countSteps(store: Awaited<ReturnType<typeof openSqliteStore>>): Promise<number> {
  return (await store.readLog({ owner: '', threadId: 'filler', types: ['step_completed'] })).length
}

function say(answer: unknown): void {
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}

const run = acts[act]
if (run === undefined) throw new Error(`unknown act ${act}`)
say(await run())
process.exit(0)
