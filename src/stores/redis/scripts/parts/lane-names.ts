import { suspicionLimit } from '../../../../model/run.ts'

/** Names of lanes, of their members, and of the queues and groups that they belong to: keys.ts describes them. */
export const laneNames = `
-- A lane's name, without state version and kind, is the name of its group (one workflow, version and priority) followed by its queue.
local queues_of, groups_of = {}, {}
local function split(lane)
  local length, from = string.match(lane, '^[^:]+:[^:]+:(%d+):()')
  queues_of[lane], groups_of[lane] = string.sub(lane, from + length), string.sub(lane, 1, from + length - 1)
end
local function queue_of(lane)
  if not queues_of[lane] then split(lane) end
  return queues_of[lane]
end
local function group_of(lane)
  if not groups_of[lane] then split(lane) end
  return groups_of[lane]
end

local function count_in_queue(queue, by)
  if by ~= 0 and call('HINCRBY', P .. 'in-queues', queue, by) == 0 then
    call('HDEL', P .. 'in-queues', queue)
    call('DEL', P .. 'counts:' .. queue)
  end
end

-- Whether a pending run was not yet due when it was created. Those are in \`delayed:\` of their queue.
local function is_delayed(due, created)
  return due == '' or tonumber(due) > tonumber(created)
end

-- Whether a run was due when it was created. If its due time is still in the future, the clock was set back (model/clock-set-back.ts).
local function was_due(due, status, created)
  return status == 'pending' and tonumber(due) <= tonumber(created)
end

local function owner_of(run)
  return call('HGET', P .. 'run:' .. run, 'owner') or ''
end

-- Suspects have separate lanes, because a claim may take only a few of them. So have runs under a lease: once abandoned they are claimed first.
local function lane_of(version, lane, claims, status)
  local is_held = status == 'running'
  if claims and tonumber(claims) >= ${suspicionLimit} then return version .. (is_held and ':t:' or ':s:') .. lane end
  return version .. (is_held and ':h:' or ':-:') .. lane
end

-- The number in front sorts runs of the same instant by their creation.
local function member_of(number, run)
  return string.format('%016d', number) .. run
end

-- Due runs are kept per owner, and separately those that were claimed before (b) and those that never were (n).
local function ready_key(name, owner)
  return P .. 'ready:' .. #owner .. ':' .. owner .. name
end
`
