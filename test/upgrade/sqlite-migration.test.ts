import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import Better from 'better-sqlite3'
import { open } from 'holdfast'
import { expect, onTestFinished, test } from 'vitest'
import { unpackOldVersion } from './unpack-old-version.ts'

/** What a user may have in the same file: SQLite takes all of it, and renames no column beside it by itself. */
const others = {
  'a view of a table that was dropped': 'CREATE TABLE gone (x); CREATE VIEW v AS SELECT x FROM gone; DROP TABLE gone',
  'a trigger that writes to a table that is not there':
    'CREATE TABLE t (x); CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO gone VALUES (1); END',
  'a view with a text in double quotes': 'CREATE TABLE t (x); CREATE VIEW v AS SELECT x FROM t WHERE x = "text"',
}

test.each(Object.entries(others))('a file of 09549e1 with %s is migrated, and that stays as it is', async (_, sql) => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upgrade-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const old = (await import(/* @vite-ignore */ pathToFileURL(unpackOldVersion(folder)).href)) as typeof import('holdfast')
  for (const kind of ['file', 'node:sqlite', 'better-sqlite3']) {
    const file = join(folder, `${kind.replace(':', '-')}.db`)
    await (await old.open(`sqlite:${file}`, { worker: false, logger: false })).close()
    const made = new Better(file)
    made.exec(sql)
    const read = (db: Better.Database) =>
      db.prepare("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'holdfast%' AND sql NOT LIKE '%holdfast%'").all()
    const before = read(made)
    made.close()

    const handle = kind === 'file' ? null : kind === 'node:sqlite' ? new DatabaseSync(file) : new Better(file)
    const hf = await open(handle ?? `sqlite:${file}`, { worker: false, logger: false })
    await hf.start('any', undefined, { id: 'run' })
    await hf.close()
    // The engine protects its own tables again.
    if (handle !== null)
      expect(() => handle.exec('PRAGMA writable_schema = ON; DELETE FROM sqlite_schema')).toThrow(/may not be modified/)
    handle?.close()
    const after = new Better(file)
    expect(read(after)).toEqual(before)
    expect(after.pragma('integrity_check', { simple: true })).toBe('ok')
    after.close()
  }
})
