import { createHash } from 'node:crypto'
import { listing, setLabel } from './listing.ts'
import { defineScript, laneIndex, lines, places, type Script } from './script.ts'

const text = `#!lua
local P = string.sub(KEYS[1], 1, -5)
local call = redis.call
local life = call('GET', KEYS[1])
if not life then
  if call('EXISTS', P .. 'number') == 1 then return redis.error_reply('HOLDFAST none') end
  call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
if string.match(life, '^%d+') ~= '1' then return life end

${places}
${laneIndex}
index_lanes()
for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do
  local kind = string.match(name, '^%d+:(.):')
  if kind == 'b' or kind == 'n' then
    local owners = call('ZRANGE', P .. 'turns:' .. name, 0, -1)
    -- What is noted is new to the index only while the lane does not have the owner.
    call('DEL', P .. 'turns:' .. name)
    for _, owner in ipairs(owners) do
      local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
      if first[1] then note_due(name, owner, first[2]) end
    end
  else
    local first = call('ZRANGE', P .. 'lane:' .. name, 0, 0, 'WITHSCORES')
    if first[1] then note_time(name, first[2]) end
  end
end
call('UNLINK', P .. 'lanes')
-- Its runs are listed thread by thread: \`listOldRunsScript\`.
call('SET', P .. 'unlisted', '0')
call('SET', KEYS[1], ARGV[1])
return ARGV[1]
`

/**
 * Begins the life of a namespace where there is none, and brings one of version 1 to the version of this library. ARGV: 1 its life if it begins
 * now. Answers the life it has. Of many processes that come at once, the first begins or migrates it; all of it is one script. From then on
 * the scripts of a process that opened the earlier version are refused, since they compare the whole life; so are those of a process that
 * still has the namespace open after a backup of version 1 was restored and migrated. Data without a life is not taken over: something has
 * removed part of it.
 */
export const beginLifeScript: Script = { text, sha: createHash('sha1').update(text).digest('hex') }

/** Whether runs of version 1 are still to be listed. ARGV: 1 life. */
export const hasOldRunsScript = defineScript('read', `return call('EXISTS', P .. 'unlisted')`)

/**
 * Puts runs of version 1 where lists find them, those of some threads at a time; `unlisted` says how far it is. ARGV: 1 life. Answers 1 while there
 * are more. May be called by several processes, and again after a failure.
 */
export const listOldRunsScript = defineScript(
  'write',
  `
local unlisted = call('GET', P .. 'unlisted')
if not unlisted then return 0 end
local now = 0
${places}
${laneIndex}
${lines}
${listing}
${setLabel}
local threads = call('ZRANGEBYSCORE', P .. 'threads', '(' .. unlisted, '+inf', 'WITHSCORES', 'LIMIT', 0, 500)
for i = 1, #threads, 2 do
  local thread = threads[i]
  local owner
  for _, run in ipairs(runs_of(thread)) do
    local r = call('HMGET', P .. 'run:' .. run, 'owner', 'lane', 'number', 'created', 'status')
    owner = r[1] or ''
    list_run(owner, r[2], r[3], run, r[4], nil, r[5])
    call('ZREM', P .. 'owner-runs:' .. owner, run)
  end
  local labels = owner and call('HGETALL', P .. 'labels:' .. thread) or {}
  for j = 1, #labels, 2 do
    if string.sub(labels[j], 1, 1) == 'L' then
      local entry = call('LINDEX', P .. 'log:' .. thread, labels[j + 1] - (call('HGET', P .. 'thread:' .. thread, 'base') or 0) - 1)
      if entry then set_label(thread, string.sub(labels[j], 2), labels[j + 1], run_of_entry(entry, thread, owner)) end
    end
  end
end
if #threads == 1000 then
  call('SET', P .. 'unlisted', threads[#threads])
  return 1
end
call('DEL', P .. 'unlisted')
return 0
`,
)
