/**
 * Writes to keys that the changes of a batch share, collected so that each key is written once. `write_gathered` has to be called before
 * anything reads one of those keys, and at the end of the batch. Needs `laneNames` and `laneIndex`.
 */
export const gatheredWrites = `
local gathered_adds, gathered_removals, gathered_counts, gathered_times, gathered_due

local function begin_gathering()
  gathered_adds, gathered_removals, gathered_counts, gathered_times, gathered_due = {}, {}, {}, {}, {}
end
begin_gathering()

-- A run joins a lane, and may become its first.
local function note_time_later(name, at)
  if not gathered_times[name] or at < gathered_times[name] then gathered_times[name] = at end
end

-- A run of an owner in a lane became due.
local function note_due_later(name, owner, at)
  local key = ready_key(name, owner)
  local noted = gathered_due[key]
  if not noted then
    gathered_due[key] = { name = name, owner = owner, at = at }
  elseif at < noted.at then
    noted.at = at
  end
end

local function add_later(key, score, member)
  local list = gathered_adds[key]
  if not list then
    list = {}
    gathered_adds[key] = list
  end
  local length = #list
  list[length + 1], list[length + 2] = score, member
end

local function remove_later(key, member)
  local list = gathered_removals[key]
  if not list then
    list = {}
    gathered_removals[key] = list
  end
  list[#list + 1] = member
end

local function count_later(queue, status, by)
  local sums = gathered_counts[queue]
  if not sums then
    sums = {}
    gathered_counts[queue] = sums
  end
  sums[status] = (sums[status] or 0) + by
end

local function call_in_parts(command, key, list)
  for i = 1, #list, 1000 do call(command, key, unpack(list, i, math.min(i + 999, #list))) end
end

local function write_gathered()
  if next(gathered_times) or next(gathered_due) or next(gathered_counts) then index_lanes() end
  for key, list in pairs(gathered_adds) do call_in_parts('ZADD', key, list) end
  for key, list in pairs(gathered_removals) do call_in_parts('ZREM', key, list) end
  for name, at in pairs(gathered_times) do note_time(name, string.format('%d', at)) end
  for _, due in pairs(gathered_due) do note_due(due.name, due.owner, string.format('%d', due.at)) end
  for queue, sums in pairs(gathered_counts) do
    local all = 0
    for status, by in pairs(sums) do
      all = all + by
      if by ~= 0 then call('HINCRBY', P .. 'counts:' .. queue, status, by) end
    end
    count_in_queue(queue, all)
    if (sums.running or 0) < 0 then unpark(queue) end
  end
  begin_gathering()
end
`
