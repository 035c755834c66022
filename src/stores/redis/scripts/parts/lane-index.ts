/** A lane with more owners than this is not parked (L4). */
const mostParkedOwners = 4

/**
 * Leads a claim to the lanes that have something for it, so that it does not look at others. Needs `laneNames`.
 *
 *   L1  A lane that holds runs is in `sleeping:` or `apart:` of its group, at the time of its first run or earlier. A claim that finds it
 *       there too early corrects the time.
 *   L2  An owner with due runs in a lane is in the lane's `turns:`. The lane is in the owner's `heads:`, at exactly the time of the owner's
 *       first run in it, and the owner is in `owners:`; unless L3 or L4 holds.
 *   L3  A lane is in `parked:` of its queue after a claim has found the queue full or paused. It leaves `parked:` as soon as a run of the
 *       queue stops running or the queue's settings change.
 *   L4  Parking a lane with many owners would touch the indexes of all of them. It is in `limited:` of its group instead, where every
 *       claim looks at it.
 *   L5  A group with any of these is in `groups`.
 */
export const laneIndex = `
local note_time, heads_key, add_head, note_due, drop_head, note_left, park, unpark
-- Lua creates functions anew in every call of the script. These are created on first use, because plain steps need none of them.
local function index_lanes()
  if note_time then return end
  function note_time(name, at)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    if call('ZADD', P .. (kind == '-' and 'sleeping:' or 'apart:') .. group, 'LT', at, name) == 1 then call('SADD', P .. 'groups', group) end
  end

  function heads_key(kind, group, owner)
    return P .. 'heads:' .. #owner .. ':' .. owner .. kind .. ':' .. group
  end

  function add_head(kind, group, owner, name, at)
    call('ZADD', heads_key(kind, group, owner), at, name)
    if call('ZADD', P .. 'owners:' .. kind .. ':' .. group, 0, owner) == 1 then call('SADD', P .. 'groups', group) end
  end

  -- A run of this owner in this lane became due at this time.
  function note_due(name, owner, at)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    if call('ZADD', P .. 'turns:' .. name, 0, owner) == 0 then
      call('ZADD', heads_key(kind, group, owner), 'XX', 'LT', at, name)
      return
    end
    local limited, parked = P .. 'limited:' .. group, P .. 'parked:' .. queue_of(lane)
    if call('EXISTS', limited, parked) > 0 and (call('SISMEMBER', limited, name) == 1 or call('SISMEMBER', parked, name) == 1) then return end
    add_head(kind, group, owner, name, at)
  end

  function drop_head(kind, group, owner, name)
    local heads = heads_key(kind, group, owner)
    if call('ZREM', heads, name) == 0 then return false end
    if call('EXISTS', heads) == 0 then call('ZREM', P .. 'owners:' .. kind .. ':' .. group, owner) end
    return true
  end

  -- Due runs of an owner left a lane.
  function note_left(name, owner)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
    if first[1] then
      call('ZADD', heads_key(kind, group, owner), 'XX', first[2], name)
      return
    end
    call('ZREM', P .. 'turns:' .. name, owner)
    if not drop_head(kind, group, owner, name) and call('EXISTS', P .. 'turns:' .. name) == 0 then
      call('SREM', P .. 'limited:' .. group, name)
      call('SREM', P .. 'parked:' .. queue_of(lane), name)
    end
  end

  -- The lane's queue is full or paused: claims need not look at it (L3, L4).
  function park(group, name)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local owners = call('ZRANGE', P .. 'turns:' .. name, 0, -1)
    for _, owner in ipairs(owners) do drop_head(kind, group, owner, name) end
    if #owners > ${mostParkedOwners} then
      call('SADD', P .. 'limited:' .. group, name)
      call('SADD', P .. 'groups', group)
    elseif #owners > 0 then
      call('SADD', P .. 'parked:' .. queue_of(lane), name)
    end
  end

  -- The queue may have room again.
  function unpark(queue)
    local names = call('SMEMBERS', P .. 'parked:' .. queue)
    if #names == 0 then return end
    call('DEL', P .. 'parked:' .. queue)
    for _, name in ipairs(names) do
      local kind, lane = string.match(name, '^%d+:(.):(.*)$')
      for _, owner in ipairs(call('ZRANGE', P .. 'turns:' .. name, 0, -1)) do
        local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
        add_head(kind, group_of(lane), owner, name, first[2])
      end
    end
  end
end
`
