import { streamKey } from './parts/streams.ts'
import { defineScript } from './script.ts'

/** Records of a stream. ARGV: 1 namespace id, 2 run, 3 stream, 4 the offset that the first one holds, 5 at most so many, 6 `1` for marks alone. */
export const readChunksScript = defineScript(
  'read',
  `
${streamKey}
local key = stream_key(ARGV[2], ARGV[3])
if ARGV[6] == '1' then return call('ZRANGEBYSCORE', P .. 'voids:' .. key, ARGV[4], '+inf', 'LIMIT', 0, ARGV[5]) end
local chunks = P .. 'chunks:' .. key
local first = call('ZREVRANGEBYSCORE', chunks, ARGV[4], '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or ARGV[4]
return call('ZRANGEBYSCORE', chunks, first, '+inf', 'LIMIT', 0, ARGV[5])
`,
)
