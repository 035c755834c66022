import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { open, workflow } from 'holdfast'
import { describe, expect, onTestFinished, test } from 'vitest'
import { storeKinds } from '../behaviour/places.ts'
import { startProgram } from '../behaviour/programs.ts'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { makeCounting, readJournal } from './counting.ts'

/** A new store that two versions open, one after the other. */
const places: Readonly<Record<string, (folder: string) => Promise<string>>> = {
  postgres: async () => `${(await sharedPostgres()).url}?schema=upgrade_${randomBytes(6).toString('hex')}`,
}

const stores = Object.keys(places).filter((name) => storeKinds.some((kind) => kind.name === name))

describe.each(stores)('a process of 09549e1 that is still open when this version opens its store, on %s', (store) => {
  test('writes nothing more, and its runs are taken over', async () => {
    const folder = makeFolder()
    const url = (await places[store]?.(folder)) as string
    const old = startProgram('old-version', unpackOldVersion(folder), url, folder, String(patience(2_000)))
    await old.said('waits')

    const counting = makeCounting({ workflow, folder, who: 'new', second: async () => {} })
    const hf = await open(url, { workflows: [counting], worker: { pollMs: 50, leaseMs: patience(2_000) }, logger: false })
    onTestFinished(() => hf.close())
    writeFileSync(join(folder, 'go'), '')
    await old.said('goes on')
    expect(await old.said('tried')).toEqual({
      ...{ start: 'refused', signal: 'refused', edit: 'refused', queue: 'refused', delete: 'refused', cancel: 'refused' },
    })

    expect(await (await hf.runs.get('under-way')).result({ timeoutMs: patience(60_000) })).toBe('new')
    expect(await (await hf.runs.get('in-line')).result({ timeoutMs: patience(60_000) })).toBe('new')
    // Nobody holds a lease by now: what the old one could still do, it has done.
    expect(await hf.run('counting', undefined, { id: 'after' })).toBe('new')

    expect(readJournal(folder)).toEqual([
      ...['old: under-way first', 'old: under-way second', 'new: under-way second'],
      ...['new: in-line first', 'new: in-line second', 'new: after first', 'new: after second'],
    ])
    expect(await hf.thread('under-way').state()).toEqual({
      steps: ['under-way first', 'under-way second by new', 'in-line first', 'in-line second by new'],
    })
    const ids = (await hf.runs.list()).items.map(({ id }) => id)
    expect(ids.sort()).toEqual(['after', 'in-line', 'under-way'])
    expect((await hf.queues.list()).map(({ name }) => name)).not.toContain('late')
    await old.kill()
  })

  test('is refused when it is started again', async () => {
    const folder = makeFolder()
    const url = (await places[store]?.(folder)) as string
    await (await open(url, { worker: false })).close()
    const old = startProgram('old-version', unpackOldVersion(folder), url, folder, '1000')
    await expect(old.said('waits')).rejects.toThrow(/schema_too_new/)
  })
})

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-upgrade-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** The old version as a file that finds the drivers. */
function unpackOldVersion(folder: string): string {
  symlinkSync(join(import.meta.dirname, '../../node_modules'), join(folder, 'node_modules'))
  const file = join(folder, 'old-holdfast.mjs')
  writeFileSync(file, gunzipSync(readFileSync(new URL('./old-holdfast.mjs.gz', import.meta.url))))
  return file
}
