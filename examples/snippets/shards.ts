import assert from 'node:assert/strict'
import { crc32 } from 'node:zlib'
import { type Holdfast, open, workflow } from 'holdfast'

const greet = workflow('greet', (ctx, name: string) => ctx.step('greet', () => `Hello ${name}.`))
const urls = ['sqlite:shard-0.db', 'sqlite:shard-1.db', 'sqlite:shard-2.db']

// #region shards
const shards = await Promise.all(urls.map((url) => open(url, { workflows: [greet] })))
const shardOf = (threadId: string) => shards[crc32(threadId) % shards.length] as Holdfast
await shardOf('customer-17').thread('customer-17').run(greet, 'Alice')
// #endregion
assert.equal((await shardOf('customer-17').runs.list()).items.length, 1)

const [hf] = shards as [Holdfast]
await hf.run(greet, 'Bob', { id: 'bob' })
// #region retention
const { items } = await hf.runs.list({ status: 'completed', limit: 1_000 })
for (const { threadId, finishedAt = 0 } of items) {
  if (finishedAt < Date.now() - 30 * 24 * 3_600_000) await hf.thread(threadId).delete()
}
// #endregion
assert.equal((await hf.runs.get('bob')).id, 'bob')
for (const shard of shards) await shard.close()
