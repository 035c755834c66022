import { isOver } from './parts/is-over.ts'
import { streamKey } from './parts/streams.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { clock, defineScript, once } from './script.ts'

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

/**
 * Streams of a thread's finished runs that have more than what stands for dropped chunks. ARGV: 1 namespace id, 2 thread, 3 the bound of their ends,
 * 4 at most so many runs with streams, 5 … only these runs. Answers { run, number, end, lane, status, { stream, length, … } } for each run.
 */
export const listStreamsScript = defineScript(
  'read',
  `
${streamKey}
${isOver}
${threadRuns}
local function kept_streams(run)
  local kept, lengths = {}, call('HGETALL', P .. 'streams:' .. run)
  for i = 1, #lengths, 2 do
    local chunks = P .. 'chunks:' .. stream_key(run, lengths[i])
    local first = call('ZRANGE', chunks, 0, 0)[1]
    if first and (not string.find(first, '^0 %d+ %[%d+,0,') or call('ZCARD', chunks) > 1) then
      kept[#kept + 1] = lengths[i]
      kept[#kept + 1] = lengths[i + 1]
    end
  end
  return kept
end

local runs, answer, left = {}, {}, tonumber(ARGV[4])
if #ARGV > 4 then
  for i = 5, #ARGV do runs[#runs + 1] = ARGV[i] end
else
  runs = runs_after(ARGV[2], '0', -1)
end
for _, run in ipairs(runs) do
  if left <= 0 then break end
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'finished', 'lane', 'thread', 'number')
  if is_over[r[1]] and r[4] == ARGV[2] and tonumber(r[2]) < tonumber(ARGV[3]) then
    local kept = kept_streams(run)
    if #kept > 0 then
      left = left - 1
      answer[#answer + 1] = { run, r[5], r[2], r[3], r[1], kept }
    end
  end
end
return answer
`,
)

/**
 * Drops the chunks of streams. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 thread, then for each stream: run, name, length, and the record
 * that takes their place. Answers how many.
 */
export const dropChunksScript = defineScript(
  'free',
  `
${clock}
${once}
if kept then return kept end
${streamKey}
${isOver}
local dropped = 0
for i = 6, #ARGV, 4 do
  local run, stream, length, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'thread')
  if is_over[r[1]] and r[2] == ARGV[5] and call('HGET', P .. 'streams:' .. run, stream) == length then
    local key = stream_key(run, stream)
    local first = call('ZRANGE', P .. 'chunks:' .. key, 0, 0)[1]
    if first ~= entry or call('ZCARD', P .. 'chunks:' .. key) > 1 then
      call('UNLINK', P .. 'chunks:' .. key, P .. 'voids:' .. key)
      call('ZADD', P .. 'chunks:' .. key, 0, entry)
      call('ZADD', P .. 'voids:' .. key, 0, entry)
      dropped = dropped + 1
    end
  end
end
return keep(dropped)
`,
)
