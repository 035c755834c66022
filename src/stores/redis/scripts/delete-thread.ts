import { deleteStreams, streamKey } from './chunks.ts'
import { clock, counts, defineScript, foreignOf, laneIndex, lines, once, places, publish, settleOpen } from './script.ts'

/**
 * Deletes a thread, whole: what is left is its row, from which a new life would go on.
 * ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 thread, 7 owner, 8 time of deletion. Answers 1, or 0 where there was none.
 * It also works when memory is full, since it is what makes room. One call of the server for each of the thread's runs.
 */
export const deleteThreadScript = defineScript(
  'free',
  `
${clock}
${once}
if kept then return kept end
${foreignOf}
${places}
${laneIndex}
${lines}
${counts}
${settleOpen}
${streamKey}
${deleteStreams}
local thread, owner = ARGV[6], ARGV[7]
local key = P .. 'thread:' .. thread
local t = call('HMGET', key, 'number', 'version', 'deleted', 'floor', 'base', 'foreign')
if not t[1] or (t[3] or '') ~= '' then return keep(0) end

local head = head_of_line(thread)
if head then hide_run(head, t[2] or '0') end
local floor = tonumber(t[4] or 0)
for _, run in ipairs(runs_of(thread)) do
  local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'wait', 'intends', 'status', 'lane')
  floor = math.max(floor, tonumber(r[1]))
  if (r[2] or '') ~= '' then call('SREM', P .. 'waiting:' .. r[2], run) end
  if (r[3] or '') ~= '' then settle_open(run, ARGV[8]) end
  count_run(r[5], run, r[4], nil)
  call('ZREM', P .. 'owner-runs:' .. owner, run)
  call('UNLINK', P .. 'run:' .. run, P .. 'inbox:' .. run, P .. 'delivered:' .. run)
  delete_streams(run)
end
local log = P .. 'log:' .. thread
local base = tonumber(t[5] or 0)
local last = base + call('LLEN', log)
call('HSET', key, 'head', last, 'version', 0, 'floor', floor, 'run', '', 'foreign', foreign_of(t[6], base, last), 'patch', 0, 'checksum', 0, 'deleted', ARGV[8])
call('UNLINK', log, P .. 'runs:' .. thread, P .. 'line:' .. thread, P .. 'snapshots:' .. thread, P .. 'labels:' .. thread)
call('ZREM', P .. 'owner-threads:' .. owner, thread)
${publish}
return keep(1)
`,
)
