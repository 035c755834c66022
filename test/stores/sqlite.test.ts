import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { testStore } from '../../src/testing/index.ts'

testStore('sqlite', {
  open: async ({ clockOffsetMs }) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
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
        rmSync(folder, { recursive: true, force: true })
      },
    }
  },
})
