import { mostTies, pageSize } from './due-lanes.ts'

/**
 * Finds the lines that a claim takes runs from. A line is the due runs of one owner in one queue that were claimed before, or those that
 * never were (model/claim-order.ts); it may be spread over several lanes, each of which is a part of it. A claim reads so many runs of each part that
 * none it leaves out could come before one that it takes. Needs `askedLanes`.
 */
export const findLines = `
-- Compares bytewise. The server's own comparison of strings may follow the rules of a locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Ranges of owners in the order of their turns: those after the owner of the last turn, then the others.
local function ranges_after(last)
  if not last then return { { '-', '+' } } end
  return { { '(' .. last, '+' }, { '-', '[' .. last } }
end

local function new_lines()
  -- \`count\` is the number of lines whose first run there is room for.
  return { parts = {}, has_room = {}, by_queue = {}, count = 0 }
end
-- Adds a lane to the line of its owner and queue. Returns whether there is room for the first run of that line.
local function add_part(lines, owner, lane, most)
  local line, queue = lane.kind .. #owner .. ':' .. owner .. lane.queue, lane.queue
  if lines.has_room[line] == nil then
    local room, counts = lane.room, lines.by_queue[queue] or { b = 0, n = 0 }
    lines.by_queue[queue] = counts
    lines.has_room[line] = counts.b + counts.n < math.min(room.takes, room.places) and (lane.kind == 'b' or counts.n < room.starts)
    if lines.has_room[line] then counts[lane.kind], lines.count = counts[lane.kind] + 1, lines.count + 1 end
  end
  lines.parts[#lines.parts + 1] = { line = line, owner = owner, lane = lane, most = most, page = {}, size = 0 }
  return lines.has_room[line]
end

-- Lanes with many owners in a queue with settings (L4). No more owners are read than the queue has room for.
local function find_limited(group, last, lines)
  for _, name in ipairs(call('SMEMBERS', P .. 'limited:' .. group.name)) do
    local lane = read_lane(group, name)
    local size = lane and math.min(left, lane.room.takes, lane.room.places) or 0
    if lane and lane.kind == 'n' and lane.room.starts <= 0 then size = 0 end
    local most = size
    for _, range in ipairs(ranges_after(last)) do
      if size <= 0 then break end
      local owners = call('ZRANGEBYLEX', P .. 'turns:' .. name, range[1], range[2], 'LIMIT', 0, size)
      for _, owner in ipairs(owners) do add_part(lines, owner, lane, most) end
      size = size - #owners
    end
  end
end

-- The lines of one owner and kind, in the order of their first runs, until there are enough. Parks lanes whose queue is full (L3).
local function find_open(groups, kind, owner, lines)
  local wanted = left - lines.count
  for _, group in ipairs(groups) do
    local heads, from, is_met, met = heads_key(kind, group.name, owner), 0, {}, 0
    local is_more, last_at = true
    while is_more do
      local page = call('ZRANGE', heads, from, from + ${pageSize} - 1, 'WITHSCORES')
      is_more = #page == 2 * ${pageSize}
      local parked = 0
      for i = 1, #page, 2 do
        -- As in \`due_lanes\`: lanes of the same instant as the last one may come before it.
        if met >= wanted and (page[i + 1] ~= last_at or met >= wanted + ${mostTies}) then
          is_more = false
          break
        end
        local lane = read_lane(group, page[i])
        if lane and lane.room.places <= 0 then
          park(group.name, page[i])
          parked = parked + 1
        elseif lane and lane.room.takes > 0 then
          if add_part(lines, owner, lane, left) and not is_met[lane.queue] then met = met + 1 end
          is_met[lane.queue] = true
          last_at = page[i + 1]
        end
      end
      from = from + ${pageSize} - parked
    end
  end
end

-- The lines of all owners, in the order of their turns, until there is one for each run that may be taken.
local function find_owners(groups, last, lines)
  for _, range in ipairs(ranges_after(last)) do
    local from, is_more = range[1], true
    while is_more and lines.count < left do
      local size, owners, is_known = left - lines.count, {}, {}
      is_more = false
      for _, group in ipairs(groups) do
        for _, kind in ipairs({ 'b', 'n' }) do
          local page = call('ZRANGEBYLEX', P .. 'owners:' .. kind .. ':' .. group.name, from, range[2], 'LIMIT', 0, size)
          if #page == size then is_more = true end
          for _, owner in ipairs(page) do
            if not is_known[owner] then owners[#owners + 1] = owner end
            is_known[owner] = true
          end
        end
      end
      if #owners > 1 then table.sort(owners, is_before) end
      if #owners > size then is_more = true end
      for i = 1, math.min(size, #owners) do
        if lines.count >= left then return end
        find_open(groups, 'b', owners[i], lines)
        if lines.count < left then find_open(groups, 'n', owners[i], lines) end
        from = '(' .. owners[i]
      end
    end
  end
end
`
