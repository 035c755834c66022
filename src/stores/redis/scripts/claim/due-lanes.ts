/** A claim checks at most so many lanes in each index by time, and wakes at most so many runs unless it may take more. */
const mostChecks = 1_000
export const mostWakes = 500
/** How many entries of an index are read at once, and how many beyond the last needed one if they are of the same instant. */
export const pageSize = 100
export const mostTies = 10

/** Finds lanes whose first run can be claimed by now. Needs `askedLanes`. */
export const dueLanes = `
-- What one claim corrects and wakes is bounded, so that it does not block the server after a long pause; the next claim continues.
local checks_left, wakes_left = { ['sleeping:'] = ${mostChecks}, ['apart:'] = ${mostChecks} }, math.max(${mostWakes}, limit)

-- Returns the lanes of a group whose first run is due, earliest first, and whether there may be more. \`is_wanted\` chooses among lanes.
-- It also returns some lanes beyond \`most\` with the same time as the last: the order of their runs is decided later.
local function due_lanes(index, group, most, is_wanted)
  local key, found, offset, lanes = P .. index .. group.name, {}, 0, {}
  while true do
    local page = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', offset, ${pageSize})
    if #page == 0 then return found, false end
    local is_corrected = false
    for i = 1, #page, 2 do
      local name = page[i]
      if lanes[name] == nil then
        local lane = read_lane(group, name)
        lanes[name] = lane and lane.room.takes > 0 and (not is_wanted or is_wanted(lane)) and lane or false
      end
      if lanes[name] and not lanes[name].is_checked then
        if checks_left[index] <= 0 then return found, true end
        checks_left[index] = checks_left[index] - 1
        local first = call('ZRANGE', P .. 'lane:' .. name, 0, 0, 'WITHSCORES')
        if not first[1] then
          call('ZREM', key, name)
          is_corrected = true
        elseif tonumber(first[2]) ~= tonumber(page[i + 1]) then
          call('ZADD', key, first[2], name)
          is_corrected = true
        end
        lanes[name].is_checked = true
      end
    end
    if not is_corrected then
      for i = 1, #page, 2 do
        local lane, at = lanes[page[i]], tonumber(page[i + 1])
        if #found >= most and (at > found[#found].at or #found >= most + ${mostTies}) then return found, true end
        if lane then found[#found + 1] = { lane = lane, at = at } end
      end
      offset = offset + #page / 2
    end
  end
end
`

/** Moves runs whose time has come from lanes by time to the due runs of their owners. Needs `dueLanes`. */
export const wakeRuns = `
-- Wakes the earliest runs of each lane, each lane with an equal share of what may still be woken.
local function wake(groups)
  local found = {}
  for _, group in ipairs(groups) do
    for _, one in ipairs(due_lanes('sleeping:', group, wakes_left)) do found[#found + 1] = one end
  end
  table.sort(found, by_time)
  for i, one in ipairs(found) do
    if wakes_left <= 0 then break end
    local lane = one.lane
    local share = math.ceil(wakes_left / (#found - i + 1))
    local woken = call('ZRANGEBYSCORE', P .. 'lane:' .. lane.name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, share)
    for j = 1, #woken, 2 do
      local run, at = string.sub(woken[j], 17), woken[j + 1]
      local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'thread', 'owner')
      local owner = r[3] or ''
      local is_new = r[1] == '0' or r[1] == call('HGET', P .. 'thread:' .. r[2], 'floor')
      local name = lane.state .. (is_new and ':n:' or ':b:') .. lane.lane
      call('HSET', P .. 'run:' .. run, 'ready', is_new and 'n' or 'b')
      add_later(ready_key(name, owner), at, woken[j])
      note_due_later(name, owner, tonumber(at))
    end
    wakes_left = wakes_left - #woken / 2
    call('ZREMRANGEBYRANK', P .. 'lane:' .. lane.name, 0, #woken / 2 - 1)
  end
  if #found > 0 then write_gathered() end
end
`

/** Claims abandoned runs and suspects, by time. Needs `dueLanes` and `takeRun`. */
export const takeApart = `
local function is_apart_wanted(lane)
  if lane.kind ~= 'h' and suspects_left <= 0 then return false end
  return lane.kind ~= 's' or lane.room.places > 0
end
local function take_apart(groups)
  repeat
    local found, is_more = {}, false
    for _, group in ipairs(groups) do
      local lanes, are_more = due_lanes('apart:', group, left, is_apart_wanted)
      is_more = is_more or are_more
      for _, one in ipairs(lanes) do
        local size = one.lane.kind == 'h' and left or math.min(suspects_left, left)
        local page = call('ZRANGEBYSCORE', P .. 'lane:' .. one.lane.name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, size)
        for i = 1, #page, 2 do found[#found + 1] = { member = page[i], at = tonumber(page[i + 1]), lane = one.lane } end
      end
    end
    table.sort(found, by_time)
    -- Stopped at a run without room while there are more lanes: reads again, now without the lanes of that queue.
    local is_stopped = take_from(found, is_more)
    write_taken()
  until not is_stopped or checks_left['apart:'] <= 0
end
`
