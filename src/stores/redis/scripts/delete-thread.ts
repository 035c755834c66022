import { claimableRuns } from './parts/claimable-runs.ts'
import { closeOperations } from './parts/close-operations.ts'
import { foreignOf } from './parts/foreign-positions.ts'
import { isOver } from './parts/is-over.ts'
import { labels } from './parts/labels.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { queueCounts } from './parts/queue-counts.ts'
import { records } from './parts/records.ts'
import { runLists } from './parts/run-lists.ts'
import { deleteStreams, streamKey } from './parts/streams.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { clock, defineScript, once, publish } from './script.ts'

/** Deletes a thread, and leaves its row as a tombstone. False if there is no such thread. */
const deletion = `
${foreignOf}
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
${queueCounts}
${closeOperations}
${runLists}
${labels}
${streamKey}
${deleteStreams}
${records}
local function delete_thread(thread, owner, at)
  local key = P .. 'thread:' .. thread
  local t = call('HMGET', key, 'number', 'version', 'deleted', 'floor', 'base', 'foreign')
  if not t[1] or (t[3] or '') ~= '' then return false end

  local next_run = next_run_of(thread)
  if next_run then make_unclaimable(next_run, t[2] or '0') end
  local floor = tonumber(t[4] or 0)
  local labels = P .. 'labels:' .. thread
  for _, field in ipairs(call('HKEYS', labels)) do
    if string.sub(field, 1, 1) == 'L' then drop_label(labels, string.sub(field, 2)) end
  end
  for _, run in ipairs(runs_after(thread, '0', -1)) do
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'wait', 'intends', 'status', 'lane', 'number', 'created')
    floor = math.max(floor, tonumber(r[1]))
    if (r[2] or '') ~= '' then call('SREM', P .. 'waiting:' .. r[2], run) end
    if (r[3] or '') ~= '' then close_open_operations(run, at) end
    count_run(r[5], run, r[4], nil)
    list_run(owner, r[5], r[6], run, r[7], r[4], nil)
    forget_buckets(owner, r[5])
    call('UNLINK', P .. 'run:' .. run, P .. 'inbox:' .. run, P .. 'delivered:' .. run)
    delete_streams(run)
  end
  local log = P .. 'log:' .. thread
  local base = tonumber(t[5] or 0)
  local last = base + call('LLEN', log)
  call('HSET', key, 'head', last, 'version', 0, 'floor', floor, 'run', '', 'foreign', foreign_of(t[6], base, last), 'patch', 0, 'checksum', 0, 'deleted', at)
  call('UNLINK', log, P .. 'runs:' .. thread, P .. 'line:' .. thread, P .. 'snapshots:' .. thread, P .. 'labels:' .. thread)
  call('ZREM', P .. 'owner-threads:' .. owner, thread)
  for _, record in ipairs(call('ZRANGE', P .. 'thread-records:' .. thread, 0, -1)) do drop_record(record) end
  return true
end
`

/**
 * Deletes a thread completely. Its row stays as a tombstone, from which a new incarnation would continue.
 * ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 publication, 6 thread, 7 owner, 8 time of deletion. Answers 1, or 0 if there is no such thread.
 * It also works when memory is full, because it makes room. It takes several commands for each run of the thread.
 */
export const deleteThreadScript = defineScript(
  'free',
  `
${clock}
${once}
if kept then return kept end
${deletion}
if not delete_thread(ARGV[6], ARGV[7], ARGV[8]) then return keep(0) end
${publish}
return keep(1)
`,
)

/**
 * Removes threads that nothing needs any more. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 operations that were closed at this time
 * or later keep their thread, and a thread that was created then stays, 6 `1` if labels do, 7 `1` to judge only, 8 `1` to remove
 * them whatever their state, then for each thread: its name, its owner, its last position. Answers with the verdicts.
 */
export const collectThreadsScript = defineScript(
  'free',
  `
${clock}
${once}
if kept then return kept end
${deletion}
local function judge(thread, head)
  local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'deleted', 'head', 'base', 'created')
  if not t[1] then return 'gone' end
  if ARGV[8] == '1' then return 'removed' end
  local last = (t[2] or '') ~= '' and t[3] or tonumber(t[4] or 0) + call('LLEN', P .. 'log:' .. thread)
  if tonumber(last) ~= tonumber(head) then return 'changed' end
  if next_run_of(thread) then return 'unfinished' end
  for _, operation in ipairs(call('SMEMBERS', P .. 'operations:' .. thread)) do
    local closed = tonumber(call('HGET', P .. 'operation:' .. operation, 'closed') or '')
    if not closed or closed >= tonumber(ARGV[5]) then return 'operations' end
  end
  if tonumber(t[5]) >= tonumber(ARGV[5]) then return 'changed' end
  if ARGV[6] == '1' and call('EXISTS', P .. 'labels:' .. thread) == 1 then return 'labelled' end
  return 'removed'
end

local verdicts = {}
for i = 9, #ARGV, 3 do
  local thread = ARGV[i]
  local verdict = judge(thread, ARGV[i + 2])
  verdicts[#verdicts + 1] = verdict
  if verdict == 'removed' and ARGV[7] ~= '1' then
    delete_thread(thread, ARGV[i + 1], 0)
    for _, operation in ipairs(call('SMEMBERS', P .. 'operations:' .. thread)) do
      call('ZREM', P .. 'unsure', operation)
      call('UNLINK', P .. 'operation:' .. operation)
    end
    call('UNLINK', P .. 'operations:' .. thread, P .. 'thread:' .. thread)
    call('ZREM', P .. 'threads', thread)
  end
end
return keep(verdicts)
`,
)
