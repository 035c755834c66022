import { createClient } from 'redis'
import { startRedis } from '../../test/servers/redis.ts'
import { measureLoad, measureLoneStep, type RawWrites, runCount, stepsARun } from '../measuring/engine-speed.ts'
import type { Scorecard } from '../measuring/scorecard.ts'
import { formatSpread } from '../measuring/spread.ts'

interface Options {
  readonly sliceCount: number
  readonly scorecard: Scorecard
}

/** Redis, with its append-only file flushed at every write and once a second, each on a server of its own. */
export async function measureRedis(options: Options): Promise<void> {
  await measureWith('always', { lone: 2, load: 8 }, options)
  await measureWith('everysec', { lone: 2, load: 5 }, options)
}

async function measureWith(
  fsync: 'always' | 'everysec',
  targets: { readonly lone: number; readonly load: number },
  { sliceCount, scorecard }: Options,
): Promise<void> {
  const server = await startRedis({ fsync })
  const client = await connect(server.url)
  try {
    const [, version] = /redis_version:(\S+)/.exec(String(await client.info('server'))) ?? []
    const durability = fsync === 'always' ? 'full' : 'relaxed'
    const shared = { target: server.url, open: { durability }, raw: rawWrites(client), sliceCount } as const
    const lone = await measureLoneStep(shared)
    const load = await measureLoad(shared)
    console.log(`
Redis ${version}, appendfsync ${fsync}, over loopback; raw: MULTI of three writes (two entries of a log, a head, a run's step), one at a time
  a lone run's step, ${sliceCount} slices
    raw     ${formatSpread(lone.rawUs, 0)} µs
    engine  ${formatSpread(lone.engineUs, 0)} µs
    ratio   ${formatSpread(lone.ratio)} engine / raw
  ${runCount} runs × ${stepsARun} steps at once, worker concurrency ${runCount}, claims and completions included
    raw     ${formatSpread(load.rawRate, 0)} steps/s
    engine  ${formatSpread(load.engineRate, 0)} steps/s
    ratio   ${formatSpread(load.ratio)} × raw in all; ${formatSpread(load.stepRatio)} × from the first step to the last`)
    scorecard.atMost(`Redis, AOF ${fsync}: a lone step against raw MULTI`, lone.ratio.median, targets.lone)
    scorecard.atLeast(`Redis, AOF ${fsync}: ${runCount} × ${stepsARun} steps against raw MULTI`, load.ratio.median, targets.load)
  } finally {
    client.destroy()
    await server.stop()
  }
}

function connect(url: string) {
  return createClient({ url }).connect()
}

/** The writes of a step, without a guard, a codec, a checksum or a function. */
function rawWrites(client: Awaited<ReturnType<typeof connect>>): RawWrites {
  const started = '1234567890 -["step_started",true,"s",1,1,1790000000000,null,null,null,null]\n'
  const completed = '1234567890 C["step_completed",true,"s",1,1,1790000000000,0,1,null,1]\n1'
  let head = 0
  return {
    async write(count) {
      for (let i = 0; i < count; i++) {
        head += 2
        await client
          .multi()
          .rPush('{raw}log', [started, completed])
          .hSet('{raw}thread', 'head', String(head))
          .hSet('{raw}run', ['step', '=s', 'until', String(head)])
          .exec()
      }
    },
  }
}
