import { randomBytes } from 'node:crypto'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { testStore } from '../../src/testing/index.ts'

testStore('postgres', {
  open: async ({ clockOffsetMs }) => {
    const schema = `t_${randomBytes(6).toString('hex')}`
    const open = () => openPostgresStore({ url: 'postgres://postgres@127.0.0.1:55432/postgres', schema, durability: 'full', clockOffsetMs })
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
      },
    }
  },
})
