import { setBackToleranceMs } from '../../../model/clock-set-back.ts'
import { runFields, threadFields } from '../rows.ts'
import { gatheredListing, listing } from './listing.ts'
import {
  at,
  clock,
  defineScript,
  foreignOf,
  gathering,
  laneIndex,
  lines,
  once,
  places,
  quoted,
  replyOf,
  rowOf,
} from './script.ts'

/** How many lanes a claim looks at in each index by time at most, and how many runs it wakes at most unless it may take more. */
const mostChecks = 1_000
const mostWakes = 500
/** How many entries of an index are read at once, and of those that are as early as the last one that is needed. */
const pageSize = 100
const mostTies = 10

/**
 * Takes runs, in the order of model/turns.ts. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 worker, 6 lease ms, 7 limit, 8 a random word
 * for lease ids, 9 { { { workflow, version, highest state version or false } … }, queues or false, how many suspects or false,
 * { { queue, limit } … }, { { priority, last owner } … } }, 10 what the time is at least, unless the clock was set back.
 *
 * Answers { now, { run, its row and its thread's in one, length of the log, input entry, holder it was taken from, end of that lease, 1 where
 * its queue has a limit }, … }, or { now, 0 } where the clock was set back, and nothing was done.
 * Lanes hold only heads of lines, so sleeping runs and those behind others are never touched. The index of lanes (`laneIndex`) leads to
 * those that have something to take, so a claim costs about what it takes, however many queues there are.
 */
export const claimScript = defineScript(
  'write',
  `
${clock}
${once}
${places}
${laneIndex}
${lines}
${gathering}
${listing}
${gatheredListing}
${replyOf}
${rowOf}
local worker, lease_ms, limit, word = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

-- How many more runs of a queue may be taken: by this claim, at a time, and started in this stretch of time.
local rooms, takes = {}, {}
local function room_of(queue)
  local room = rooms[queue]
  if room then return room end
  local q = call('HMGET', P .. 'queue:' .. queue, 'concurrency', 'rate_count', 'rate_per_ms', 'is_paused')
  local concurrency, count = q[1] or '', q[2] or ''
  room = { takes = takes[queue] or math.huge, places = math.huge, starts = math.huge, is_limited = 0 }
  if concurrency ~= '' then room.places = concurrency - (call('HGET', P .. 'counts:' .. queue, 'running') or 0) end
  if q[4] == '1' then room.places, room.takes = 0, 0 end
  if count ~= '' then
    room.since = now - q[3]
    room.starts = tonumber(count)
    local starts = call('HGETALL', P .. 'starts:' .. queue)
    for i = 1, #starts, 2 do
      -- One that is far ahead was noted before the clock was set back.
      local at = tonumber(starts[i])
      if at > room.since and at <= now + ${setBackToleranceMs} then room.starts = room.starts - starts[i + 1] end
    end
  end
  if concurrency ~= '' or count ~= '' then room.is_limited = 1 end
  rooms[queue] = room
  return room
end

local function describe(run, row, holder, until_)
  local thread = row[${at(runFields, 'thread')}]
  local log, place = P .. 'log:' .. thread, row[${at(runFields, 'input')}] - row[${at(runFields, 'base')}] - 1
  for i, value in ipairs(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)})) do row[${runFields.length} + i] = value end
  return { run, cjson.encode(row), call('LLEN', log), call('LINDEX', log, place) or '', holder, until_, room_of(queue_of(row[${at(runFields, 'lane')}])).is_limited }
end

if kept then
  -- Asked for again: only what is still held under the leases of that claim, since something may have happened meanwhile.
  local answer = { kept[1] }
  for i = 2, #kept do
    local row = row_of(kept[i][1])
    if row[${at(runFields, 'lease')}] == kept[i][2] then answer[#answer + 1] = describe(kept[i][1], row, kept[i][3], kept[i][4]) end
  end
  return answer
end

if now < tonumber(ARGV[10]) then return { now, 0 } end
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

-- Groups of lanes that this worker can execute, by priority.
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

-- A lane of a group, unless this worker does not take its runs.
local function read_lane(group, name)
  local state, kind, lane = string.match(name, '^(%d+):(.):(.*)$')
  local queue = queue_of(lane)
  if tonumber(state) > group.highest or (queues and not queues[queue]) then return end
  return { name = name, state = state, kind = kind, lane = lane, queue = queue, room = room_of(queue) }
end

local answer, claims, bytes = { now }, { now }, 0
local left, suspects_left = limit, asked[3] or limit
local starts, taken_from = {}, {}

local function take(one)
  local lease = word .. #claims
  local run = string.sub(one.member, 17)
  local key = P .. 'run:' .. run
  local row, r = row_of(run)
  local was, holder, ended = row[${at(runFields, 'status')}], row[${at(runFields, 'holder')}], row[${at(runFields, 'until')}]
  local epoch, count, until_ = row[${at(runFields, 'epoch')}] + 1, row[${at(runFields, 'claims')}] + 1, now + lease_ms
  row[${at(runFields, 'status')}], row[${at(runFields, 'epoch')}], row[${at(runFields, 'lease')}] = 'running', tostring(epoch), lease
  row[${at(runFields, 'until')}], row[${at(runFields, 'holder')}] = tostring(until_), worker
  row[${at(runFields, 'claims')}], row[${at(runFields, 'end')}] = tostring(count), ''
  call('HSET', key, 'status', 'running', 'epoch', row[${at(runFields, 'epoch')}], 'lease', lease, 'until', row[${at(runFields, 'until')}], 'holder', worker,
    'claims', row[${at(runFields, 'claims')}], 'ready', '')
  if r['end'] then call('HSET', key, 'end', '') end
  if was ~= 'running' then
    count_later(one.lane.queue, was, -1)
    count_later(one.lane.queue, 'running', 1)
    list_later(r.owner or '', row[${at(runFields, 'lane')}], one.member, row[${at(runFields, 'created')}], was, 'running')
    holder, ended = '', ''
  end
  if was == 'pending' and is_delayed(row[${at(runFields, 'due')}], row[${at(runFields, 'created')}]) then remove_later(P .. 'delayed:' .. one.lane.queue, run) end
  if (r.wait or '') ~= '' then
    call('SREM', P .. 'waiting:' .. r.wait, run)
    call('HSET', key, 'wait', '')
  end
  local lane = lane_of(one.lane.state, one.lane.lane, count, 'running')
  if one.owner then
    local ready = ready_key(one.lane.name, one.owner)
    taken_from[ready] = one
    remove_later(ready, one.member)
  elseif lane ~= one.lane.name then
    remove_later(P .. 'lane:' .. one.lane.name, one.member)
  end
  note_time_later(lane, until_)
  add_later(P .. 'lane:' .. lane, row[${at(runFields, 'until')}], one.member)
  claims[#claims + 1] = { run, lease, holder, ended }
  answer[#answer + 1] = describe(run, row, holder, ended)
  bytes = bytes + #answer[#answer][4]
end

-- Takes a run if its queue has room for it. Returns whether it has.
local function take_if_room(one)
  local kind, room = one.lane.kind, one.lane.room
  local is_held, is_suspect, is_new = kind == 'h' or kind == 't', kind == 's' or kind == 't', kind == 'n'
  if room.takes <= 0 or (not is_held and room.places <= 0) or (is_new and room.starts <= 0) or (is_suspect and suspects_left <= 0) then return false end
  room.takes = room.takes - 1
  if not is_held then room.places = room.places - 1 end
  if is_suspect then suspects_left = suspects_left - 1 end
  if is_new then
    room.starts = room.starts - 1
    if room.since then starts[one.lane.queue] = (starts[one.lane.queue] or 0) + 1 end
  end
  left = left - 1
  take(one)
  return true
end

-- Very large inputs come a few at a time.
local function is_enough()
  return left <= 0 or bytes > 33554432
end

local function by_time(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return (a.member or a.lane.name) < (b.member or b.lane.name)
end

local function write_taken()
  write_gathered()
  for _, one in pairs(taken_from) do note_left(one.lane.name, one.owner) end
  taken_from = {}
end

-- Takes from candidates in their order. Where there are more of them, it stops at one that there is no room for, and returns true.
local function take_from(found, is_more)
  for _, one in ipairs(found) do
    if is_enough() then return false end
    if not take_if_room(one) and is_more then return true end
  end
  return false
end

-- What a claim corrects and wakes is bounded, so that it is short whatever has come due; the next one continues.
local checks_left, wakes_left = { ['sleeping:'] = ${mostChecks}, ['apart:'] = ${mostChecks} }, math.max(${mostWakes}, limit)

-- The lanes of a group whose first run has come due, earliest first, and whether there may be more. \`is_wanted\` says which are looked at.
-- Behind the last one come those of the same instant, some of them at least: which of their runs is the first is decided later.
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

-- Runs that have slept until now get ready: of each lane the earliest, in equal shares.
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

-- Abandoned runs and suspects.
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
    local is_stopped = take_from(found, is_more)
    write_taken()
  until not is_stopped or checks_left['apart:'] <= 0
end

-- The server may compare text by the rules of a language.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The stretches of owners in the order of their turns: those after the one who had the last turn, then the others.
local function stretches_after(last)
  if not last then return { { '-', '+' } } end
  return { { '(' .. last, '+' }, { '-', '[' .. last } }
end

-- A line is what runs of one owner in one queue form, claimed before or not; runs of several lanes may be in it. What a claim looks at of
-- one is the first runs of each lane, so many that others' could not come before those that it leaves out.
local function new_lines()
  -- \`count\`: of how many there is room for the first run.
  return { parts = {}, has_room = {}, by_queue = {}, count = 0 }
end
-- Returns whether there is room for the first run of its line.
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

-- A lane of many owners in a queue with settings: there are at most as many to look at as it has room.
local function find_limited(group, last, lines)
  for _, name in ipairs(call('SMEMBERS', P .. 'limited:' .. group.name)) do
    local lane = read_lane(group, name)
    local size = lane and math.min(left, lane.room.takes, lane.room.places) or 0
    if lane and lane.kind == 'n' and lane.room.starts <= 0 then size = 0 end
    local most = size
    for _, stretch in ipairs(stretches_after(last)) do
      if size <= 0 then break end
      local owners = call('ZRANGEBYLEX', P .. 'turns:' .. name, stretch[1], stretch[2], 'LIMIT', 0, size)
      for _, owner in ipairs(owners) do add_part(lines, owner, lane, most) end
      size = size - #owners
    end
  end
end

-- Lines of one owner, of one kind: by the time of their first runs, until there are enough.
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
        -- Those of the same instant as the last one may come before it, as in \`due_lanes\`.
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

-- Lines of all owners, in the order of their turns, until there is one for each run that may be taken.
local function find_owners(groups, last, lines)
  for _, stretch in ipairs(stretches_after(last)) do
    local from, is_more = stretch[1], true
    while is_more and lines.count < left do
      local size, owners, is_known = left - lines.count, {}, {}
      is_more = false
      for _, group in ipairs(groups) do
        for _, kind in ipairs({ 'b', 'n' }) do
          local page = call('ZRANGEBYLEX', P .. 'owners:' .. kind .. ':' .. group.name, from, stretch[2], 'LIMIT', 0, size)
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

-- How many of the runs that were read there is room for, where of each line only the first so many are sure to be all.
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

-- Reads the first runs of each part: as many of each line as there may be turns.
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

-- All that is read of the lines, in the order of turns.
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

local is_done, problem = pcall(function()
  for _, priority in ipairs(priorities) do
    local groups = by_priority[priority]
    wake(groups)
    take_apart(groups)
    if is_enough() then break end
    take_in_turn(groups, last_owners[priority])
    if is_enough() then break end
    for _, group in ipairs(groups) do
      local name = group.name
      if call('EXISTS', P .. 'sleeping:' .. name, P .. 'apart:' .. name, P .. 'limited:' .. name, P .. 'owners:b:' .. name, P .. 'owners:n:' .. name) == 0 then
        call('SREM', P .. 'groups', name)
      end
    end
  end
end)
-- A damaged key breaks the claim; what was taken before it is held by nobody until its lease ends.
write_taken()
if not is_done then return reply_of(problem) end
if #claims == 1 then return { now } end
for queue, count in pairs(starts) do
  local key = P .. 'starts:' .. queue
  for _, at in ipairs(call('HKEYS', key)) do
    if tonumber(at) <= rooms[queue].since then call('HDEL', key, at) end
  end
  call('HINCRBY', key, string.format('%.0f', now), count)
end
keep(claims)
return answer
`,
)

/**
 * Gives leases that were granted before the clock was set back their usual length, and makes suspects due that were due before: see
 * model/clock-set-back.ts. Other runs that are due are in no index by time, so nothing holds them up. ARGV: 1 life, 2 clock offset, 3 the lease
 * in ms, 4 the longest lease in ms. Answers { now, 1 where there are more }. Sent twice it does the same again.
 */
export const heedSetBackScript = defineScript(
  'free',
  `
${clock}
${places}
${laneIndex}
${lines}
local lease_ms, latest = tonumber(ARGV[3]), now + tonumber(ARGV[4])
local left = ${mostWakes}
for _, group in ipairs(call('SMEMBERS', P .. 'groups')) do
  for _, name in ipairs(call('ZRANGE', P .. 'apart:' .. group, 0, -1)) do
    local is_held = string.match(name, '^%d+:(.)') ~= 's'
    local from = is_held and latest or now
    for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'lane:' .. name, '(' .. string.format('%d', from), '+inf', 'LIMIT', 0, left)) do
      local run = string.sub(member, 17)
      local key = P .. 'run:' .. run
      local r = call('HMGET', key, 'due', 'status', 'created', 'started')
      if is_held then
        call('HSET', key, 'until', string.format('%d', now + lease_ms))
        show(name, string.sub(member, 1, 16), run, string.format('%d', now + lease_ms))
        left = left - 1
      elseif r[2] == 'pending' and ((r[4] or '') ~= '' or was_due(r[1], r[2], r[3])) then
        call('HSET', key, 'due', string.format('%d', now))
        show(name, string.sub(member, 1, 16), run, string.format('%d', now))
        left = left - 1
      end
      if left <= 0 then return { now, 1 } end
    end
  end
end
return { now, 0 }
`,
)

/**
 * Extends leases. ARGV: 1 life, 2 clock offset, 3 lease ms, 4 { { run, epoch, lease, last position under a lease that is known } … }. Answers for each: 0 not held, 1 held,
 * 2 held with mail. Sent twice it does the same again.
 */
export const renewScript = defineScript(
  'free',
  `
${clock}
${foreignOf}
${places}
${laneIndex}
${lines}
local until_ = now + tonumber(ARGV[3])
local answer = {}
for i, asked in ipairs(cmsgpack.unpack(ARGV[4])) do
  local run = asked[1]
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'epoch', 'lease', 'mail', 'thread', 'base')
  local is_held = r[1] == asked[2] and r[2] == asked[3] and r[2] ~= ''
  if is_held and asked[4] > 0 then
    local base = tonumber(r[5] or 0)
    local head = base + call('LLEN', P .. 'log:' .. r[4])
    is_held = head - foreign_of(call('HGET', P .. 'thread:' .. r[4], 'foreign'), base, head) >= asked[4]
  end
  if not is_held then
    answer[i] = 0
  else
    call('HSET', key, 'until', until_)
    show_if_head(run, r[4])
    answer[i] = (r[3] or '0') == '0' and 1 or 2
  end
end
return answer
`,
)
