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
-- Its lanes are indexed and its runs listed a part at a time, before anybody works with them: \`listOldRunsScript\`.
call('SET', P .. 'unlisted', '0')
call('SET', KEYS[1], ARGV[1])
return ARGV[1]
`

/**
 * Begins the life of a namespace where there is none, and brings one of version 1 to the version of this library. ARGV: 1 its life if it begins
 * now. Answers the life it has. Of many processes that come at once, the first begins or migrates it. From then on
 * the scripts of a process that opened the earlier version are refused, since they compare the whole life; so are those of a process that
 * still has the namespace open after a backup of version 1 was restored and migrated. Data without a life is not taken over: something has
 * removed part of it.
 */
export const beginLifeScript: Script = { text, sha: createHash('sha1').update(text).digest('hex') }

/** How many threads, or owners and lanes, are brought to this version at once. */
const partSize = 500

/** Whether lanes and runs of version 1 are still to be indexed and listed. ARGV: 1 life. */
export const hasOldRunsScript = defineScript('read', `return call('EXISTS', P .. 'unlisted')`)

/**
 * Puts lanes of version 1 where claims find them, then runs where lists do, some at a time: other programs may use the same server. `indexing` and
 * `unlisted` say how far it is. ARGV: 1 life. Answers 1 while there are more. May be called by several processes, and again after a failure.
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
-- An owner is indexed as often as it is met, so a part may be done again.
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
-- What is damaged is not listed, and keeps nothing else from it: a namespace that is half migrated can be opened by no version.
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
  local runs = runs_of(thread)
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
