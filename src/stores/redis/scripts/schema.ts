import { createHash } from 'node:crypto'
import { claimableRuns } from './parts/claimable-runs.ts'
import { isOver } from './parts/is-over.ts'
import { labels } from './parts/labels.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { runLists } from './parts/run-lists.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { defineScript, type Script } from './script.ts'

const text = `#!lua
local P = string.sub(KEYS[1], 1, -5)
local call = redis.call
local namespace_id = call('GET', KEYS[1])
if not namespace_id then
  if call('EXISTS', P .. 'number') == 1 then return redis.error_reply('HOLDFAST none') end
  call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
local version = tonumber(string.match(namespace_id, '^%d+'))
if not version or version >= 3 then return namespace_id end
-- Lanes are indexed and runs listed in parts, before any process works with them: \`listOldRunsScript\`. Version 2 had no records.
if version == 1 then call('SET', P .. 'unlisted', '0') end
call('SET', KEYS[1], ARGV[1])
return ARGV[1]
`

/**
 * Creates a namespace, or begins to migrate one of version 1 or 2. ARGV: 1 the namespace id if it is created or migrated now. Answers the id that it
 * has. Of many processes that open it at once, the first creates or migrates it. From then on all scripts of a process that opened the
 * earlier version are refused, because they compare the id; so are those of a process that still has the namespace open after
 * a backup of an earlier version was restored and migrated. Data without an id is not taken over: something has removed part of it.
 */
export const openNamespaceScript: Script = { text, sha: createHash('sha1').update(text).digest('hex') }

/** How many threads, or owners and lanes, one call migrates. */
const partSize = 500

/** Whether the migration from version 1 is unfinished. ARGV: 1 namespace id. */
export const hasOldRunsScript = defineScript('read', `return call('EXISTS', P .. 'unlisted')`)

/**
 * Migrates a part of a namespace of version 1: puts lanes where claims find them, then runs where lists do. In parts, because other programs may
 * use the same server. `indexing` and `unlisted` say how far it is. ARGV: 1 namespace id. Answers 1 while there is more to do. Several
 * processes may call it at once, and again after a failure.
 */
export const listOldRunsScript = defineScript(
  'write',
  `
local unlisted = call('GET', P .. 'unlisted')
if not unlisted then return 0 end
local now = 0
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
${runLists}
${labels}
-- To index an owner twice does no harm, so a part may be done again.
local indexed = call('HMGET', P .. 'indexing', 'lane', 'owner')
local name, after, left = indexed[1] or call('SRANDMEMBER', P .. 'lanes'), indexed[2], ${partSize}
while name and left > 0 do
  left = left - 1
  local kind, lane = string.match(name, '^%d+:(.):(.*)$')
  if kind == 'b' or kind == 'n' then
    local owners = call('ZRANGEBYLEX', P .. 'turns:' .. name, after and '(' .. after or '-', '+', 'LIMIT', 0, left + 1)
    for _, owner in ipairs(owners) do
      local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
      if first[1] then add_head(kind, group_of(lane), owner, name, first[2]) else call('ZREM', P .. 'turns:' .. name, owner) end
    end
    if #owners > left then
      call('HSET', P .. 'indexing', 'lane', name, 'owner', owners[#owners])
      return 1
    end
    left = left - #owners
  else
    local first = call('ZRANGE', P .. 'lane:' .. name, 0, 0, 'WITHSCORES')
    if first[1] then note_time(name, first[2]) end
  end
  call('SREM', P .. 'lanes', name)
  call('DEL', P .. 'indexing')
  name, after = call('SRANDMEMBER', P .. 'lanes'), false
end
if name then return 1 end
local threads = call('ZRANGEBYSCORE', P .. 'threads', '(' .. unlisted, '+inf', 'WITHSCORES', 'LIMIT', 0, ${partSize})
-- Damaged runs and labels are skipped: a namespace whose migration fails could be opened by no version.
local function list_old(run)
  local r = call('HMGET', P .. 'run:' .. run, 'owner', 'lane', 'number', 'created', 'status')
  local owner = r[1] or ''
  list_run(owner, r[2], r[3], run, r[4], nil, r[5])
  call('ZREM', P .. 'owner-runs:' .. owner, run)
end
local function label_old(thread, owner, label, seq)
  local entry = call('LINDEX', P .. 'log:' .. thread, seq - (call('HGET', P .. 'thread:' .. thread, 'base') or 0) - 1)
  if entry then set_label(thread, label, seq, run_of_entry(entry, thread, owner)) end
end
for i = 1, #threads, 2 do
  local thread = threads[i]
  local runs = runs_after(thread, '0', -1)
  for _, run in ipairs(runs) do pcall(list_old, run) end
  local owner = runs[1] and owner_of(runs[1])
  local labels = owner and call('HGETALL', P .. 'labels:' .. thread) or {}
  for j = 1, #labels, 2 do
    if string.sub(labels[j], 1, 1) == 'L' then pcall(label_old, thread, owner, string.sub(labels[j], 2), labels[j + 1]) end
  end
end
if #threads == 2 * ${partSize} then
  call('SET', P .. 'unlisted', threads[#threads])
  return 1
end
call('DEL', P .. 'unlisted')
return 0
`,
)
