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

for (const shard of shards) await shard.close()
