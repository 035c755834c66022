/** Claims due runs in turns: the first run of every line, then the second of every line, and so on. Needs `findLines` and `takeRun`. */
export const takeInTurn = `
-- How many of the runs read so far there is room for, counting at most \`most\` of each line: no more are known to be complete.
local function count_takeable(sizes, most)
  local by_queue, total = {}, 0
  for _, line in pairs(sizes) do
    local sums = by_queue[line.lane.queue] or { b = 0, n = 0, room = line.lane.room }
    sums[line.lane.kind] = sums[line.lane.kind] + math.min(line.size, most)
    by_queue[line.lane.queue] = sums
  end
  for _, sums in pairs(by_queue) do
    local room = sums.room
    total = total + math.min(room.takes, room.places, sums.b + math.min(sums.n, room.starts))
  end
  return total
end

-- Reads the first runs of each part, twice as many each time, until enough of them can be taken.
local function read_parts(lines)
  local most = math.ceil(left / math.max(1, lines.count))
  repeat
    local is_more, sizes = false, {}
    for _, part in ipairs(lines.parts) do
      local size = math.min(most, part.most)
      if not part.is_whole and part.size < size then
        part.page, part.size = call('ZRANGE', ready_key(part.lane.name, part.owner), 0, size - 1, 'WITHSCORES'), size
        part.is_whole = #part.page < 2 * size or size == part.most
      end
      is_more = is_more or not part.is_whole
      local line = sizes[part.line] or { size = 0, lane = part.lane }
      line.size = line.size + #part.page / 2
      sizes[part.line] = line
    end
    local is_full = count_takeable(sizes, most) >= left
    most = 2 * most
  until is_full or not is_more
end

-- All runs that were read, in the order of turns.
local function in_turn(lines, last)
  local found, owners, position = {}, {}, {}
  for _, part in ipairs(lines.parts) do
    if not position[part.owner] then
      position[part.owner] = 0
      owners[#owners + 1] = part.owner
    end
    for i = 1, #part.page, 2 do
      found[#found + 1] = { member = part.page[i], at = tonumber(part.page[i + 1]), lane = part.lane, owner = part.owner, line = part.line }
    end
  end
  if #lines.parts < 2 then return found end
  table.sort(owners, function(a, b)
    local x, y = last and not is_before(last, a), last and not is_before(last, b)
    if x ~= y then return not x end
    return is_before(a, b)
  end)
  for i, owner in ipairs(owners) do position[owner] = i end
  table.sort(found, by_time)
  local turns = {}
  for _, one in ipairs(found) do
    turns[one.line] = (turns[one.line] or 0) + 1
    one.turn = turns[one.line]
  end
  table.sort(found, function(a, b)
    if a.turn ~= b.turn then return a.turn < b.turn end
    if a.owner ~= b.owner then return position[a.owner] < position[b.owner] end
    if a.lane.kind ~= b.lane.kind then return a.lane.kind < b.lane.kind end
    return by_time(a, b)
  end)
  return found
end

local function take_in_turn(groups, last)
  local lines = new_lines()
  find_owners(groups, last, lines)
  for _, group in ipairs(groups) do find_limited(group, last, lines) end
  read_parts(lines)
  take_from(in_turn(lines, last))
  write_taken()
end
`
