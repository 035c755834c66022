import { operationFields, threadFields } from '../rows.ts'
import { claimableRuns } from './parts/claimable-runs.ts'
import { isOver } from './parts/is-over.ts'
import { labels } from './parts/labels.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { queueCounts } from './parts/queue-counts.ts'
import { records } from './parts/records.ts'
import { runLists } from './parts/run-lists.ts'
import { runRow } from './parts/run-row.ts'
import { streamKey } from './parts/streams.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { clock, defineScript, once, publish, quoted } from './script.ts'

/**
 * What belongs to a thread, except its log, snapshots and chunks. ARGV: 1 namespace id, 2 thread. Answers nothing if there never was such a thread, or
 * { row, length of its log, epoch floor, { { run, row, operation it waits for, inbox, streams, ids delivered } … }, { { operation, row } … } }.
 */
export const readThreadImageScript = defineScript(
  'read',
  `
local thread = ARGV[2]
local row = call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)})
if not row[1] then return {} end
${isOver}
${threadRuns}
${runRow}
local runs, operations = {}, {}
for i, run in ipairs(runs_after(thread, '0', -1)) do
  local run_row, r = row_of(run)
  runs[i] = { run, cjson.encode(run_row), r.wait or '', call('HGETALL', P .. 'inbox:' .. run),
    call('HGETALL', P .. 'streams:' .. run), call('SMEMBERS', P .. 'delivered:' .. run) }
end
for i, operation in ipairs(call('SMEMBERS', P .. 'operations:' .. thread)) do
  operations[i] = { operation, call('HMGET', P .. 'operation:' .. operation, ${quoted(operationFields)}) }
end
return { cjson.encode(row), call('LLEN', P .. 'log:' .. thread), call('HGET', P .. 'thread:' .. thread, 'floor') or '0', runs, operations }
`,
)

/**
 * Stages a part of a thread that is to be restored. What is not restored within an hour expires. ARGV: 1 namespace id, 2 nothing, 3 slot,
 * 4 number, 5 the key, 6 `RPUSH` or `ZADD`, then what is added, at most a few thousand arguments.
 */
export const stageScript = defineScript(
  'write',
  `
${once}
if kept then return kept end
call(ARGV[6], P .. ARGV[5], unpack(ARGV, 7))
call('PEXPIRE', P .. ARGV[5], 3600000)
return keep(1)
`,
)

/**
 * Restores a thread. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 publication, 6 the thread as thread-image.ts
 * packs it. Answers 1, 0 if something of it exists already, -1 if a staged part has expired.
 */
export const restoreThreadScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
local present = now
-- At this time no run is due; those that are will be woken by the first claim.
now = 0
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
${streamKey}
${queueCounts}
${runLists}
${labels}
${records}
local whole = cmsgpack.unpack(ARGV[6])
local thread, owner = whole.thread, whole.owner
local staged_log, staged_snapshots = P .. whole.staged_log, P .. whole.staged_snapshots

local function is_taken()
  if call('EXISTS', P .. 'thread:' .. thread) == 1 then return true end
  for _, r in ipairs(whole.runs) do
    if call('EXISTS', P .. 'run:' .. r.run) == 1 then return true end
  end
  for _, o in ipairs(whole.operations) do
    if call('EXISTS', P .. 'operation:' .. o.operation) == 1 then return true end
  end
  for _, w in ipairs(whole.kept) do
    if live_version(w.record, present) > 0 then return true end
  end
end

if is_taken() then
  call('UNLINK', staged_log, staged_snapshots)
  for _, s in ipairs(whole.streams) do call('UNLINK', P .. s.chunks, P .. s.voids) end
  return keep(0)
end
if call('LLEN', staged_log) ~= whole.records or call('ZCARD', staged_snapshots) ~= whole.snapshots then return keep(-1) end
for _, s in ipairs(whole.streams) do
  if call('ZCARD', P .. s.chunks) ~= s.records or call('ZCARD', P .. s.voids) ~= s.marks then return keep(-1) end
end

local function unstage(staged, name)
  if call('EXISTS', staged) == 0 then return end
  call('PERSIST', staged)
  call('RENAME', staged, P .. name)
end
unstage(staged_log, 'log:' .. thread)
unstage(staged_snapshots, 'snapshots:' .. thread)
for _, s in ipairs(whole.streams) do
  local key = stream_key(s.run, s.stream)
  unstage(P .. s.chunks, 'chunks:' .. key)
  unstage(P .. s.voids, 'voids:' .. key)
  call('HSET', P .. 'streams:' .. s.run, s.stream, s.length)
end

local number = call('INCR', P .. 'number')
call('ZADD', P .. 'threads', number, thread)
if not whole.is_deleted then call('ZADD', P .. 'owner-threads:' .. owner, number, thread) end
for _, r in ipairs(whole.runs) do
  local key, run_number = P .. 'run:' .. r.run, string.format('%d', call('INCR', P .. 'number'))
  call('HSET', key, unpack(r.row))
  call('HSET', key, 'number', run_number, 'owner', owner)
  local counted = call('HMGET', key, 'lane', 'status', 'due', 'created')
  if r.is_open then count_run(counted[1], r.run, nil, counted[2], counted[3], counted[4]) end
  for _, message in ipairs(r.inbox) do
    local id = call('INCR', P .. 'number')
    call('HSET', P .. 'inbox:' .. r.run, id, message)
    call('HSET', key, 'mail', id)
  end
  for _, id in ipairs(r.delivered) do call('SADD', P .. 'delivered:' .. r.run, id) end
  if r.wait ~= '' then call('SADD', P .. 'waiting:' .. r.wait, r.run) end
  list_run(owner, counted[1], run_number, r.run, counted[4], nil, counted[2])
  if #whole.runs > 1 then
    call('ZADD', P .. 'runs:' .. thread, run_number, r.run)
    if r.is_open then call('ZADD', P .. 'line:' .. thread, run_number, r.run) end
  end
end
for _, o in ipairs(whole.operations) do
  call('HSET', P .. 'operation:' .. o.operation, unpack(o.row))
  call('SADD', P .. 'operations:' .. thread, o.operation)
  if o.intended_by then call('SADD', P .. 'intents:' .. o.intended_by, o.operation) end
  if o.unsure_since then call('ZADD', P .. 'unsure', o.unsure_since, o.operation) end
end
for _, w in ipairs(whole.kept) do put_record(w.record, w, w.version, w.created, w.updated, w.expires) end
call('HSET', P .. 'thread:' .. thread, 'number', number, 'run', #whole.runs == 1 and whole.runs[1].run or '', unpack(whole.row))
for label, at in pairs(whole.labels) do set_label(thread, label, at[1], at[2] ~= '' and at[2] or nil) end
local next_run = next_run_of(thread)
if next_run then make_claimable(next_run, whole.version) end
${publish}
return keep(1)
`,
)
