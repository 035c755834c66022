import { defineScript } from './script.ts'

/** Where a stream is kept: the length says where the run ends. */
export const streamKey = `
local function stream_key(run, stream)
  return #run .. ':' .. run .. stream
end
`

/** Appends what a change brings: { stream, size, checksum, whether it is a mark, header and payload } … Needs \`streamKey\`. */
export const appendChunks = `
local function append_chunks(run, chunks)
  local lengths = P .. 'streams:' .. run
  for _, k in ipairs(chunks) do
    local first, key = tonumber(call('HGET', lengths, k[1]) or 0), stream_key(run, k[1])
    local entry = first .. ' ' .. (k[3] + first) % 4294967296 .. ' ' .. k[5]
    call('ZADD', P .. 'chunks:' .. key, first, entry)
    if k[4] then call('ZADD', P .. 'voids:' .. key, first, entry) end
    call('HSET', lengths, k[1], first + k[2])
  end
end
`

/** Needs \`streamKey\`. */
export const deleteStreams = `
local function delete_streams(run)
  for _, stream in ipairs(call('HKEYS', P .. 'streams:' .. run)) do
    local key = stream_key(run, stream)
    call('UNLINK', P .. 'chunks:' .. key, P .. 'voids:' .. key)
  end
  call('UNLINK', P .. 'streams:' .. run)
end
`

/** Records of a stream. ARGV: 1 life, 2 run, 3 stream, 4 the offset that the first one holds, 5 at most so many, 6 `1` for marks alone. */
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
