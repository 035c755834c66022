import { createHash } from 'node:crypto'
import { laneIndex, places, type Script } from './script.ts'

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
