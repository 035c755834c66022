/** Reads what the worker asks for, and finds the lanes that it can execute. Needs `queueRoom`. */
export const askedLanes = `
local asked = cmsgpack.unpack(ARGV[9])
local can, queues, last_owners = {}, asked[2] and {}, {}
for _, workflow in ipairs(asked[1]) do
  local key = workflow[2] .. ':' .. workflow[1]
  local highest = workflow[3] or math.huge
  if not can[key] or can[key] < highest then can[key] = highest end
end
for _, queue in ipairs(asked[2] or {}) do queues[queue] = true end
for _, last in ipairs(asked[5]) do last_owners[last[1]] = last[2] end

for _, one in ipairs(asked[4]) do takes[one[1]] = one[2] end

-- The groups of lanes that this worker can execute, by priority.
local by_priority, priorities = {}, {}
for _, name in ipairs(call('SMEMBERS', P .. 'groups')) do
  local priority, version, from = string.match(name, '^([^:]+):([^:]+):%d+:()')
  local highest = can[version .. ':' .. string.sub(name, from)]
  priority = tonumber(priority)
  if highest then
    if not by_priority[priority] then
      by_priority[priority] = {}
      priorities[#priorities + 1] = priority
    end
    table.insert(by_priority[priority], { name = name, highest = highest })
  end
end
table.sort(priorities, function(a, b) return a > b end)

-- A lane of a group; nil if this worker does not take its runs.
local function read_lane(group, name)
  local state, kind, lane = string.match(name, '^(%d+):(.):(.*)$')
  local queue = queue_of(lane)
  if tonumber(state) > group.highest or (queues and not queues[queue]) then return end
  return { name = name, state = state, kind = kind, lane = lane, queue = queue, room = room_of(queue) }
end
`
