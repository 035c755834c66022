import { runFields, threadFields } from '../rows.ts'
import { gatheredListing, listing } from './listing.ts'
import { at, clock, defineScript, foreignOf, gathering, lines, once, places, quoted, rowOf } from './script.ts'

/**
 * Takes runs, in the order of model/turns.ts. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 worker, 6 lease ms, 7 limit, 8 a random word
 * for lease ids, 9 { { { workflow, version, highest state version or false } … }, queues or false, how many suspects or false,
 * { { queue, limit } … }, { { priority, last owner } … } }.
 *
 * Answers { now, { run, its row and its thread's in one, length of the log, input entry, holder it was taken from, end of that lease, 1 where
 * its queue has a limit }, … }.
 * Lanes hold only heads of lines, so sleeping runs and those behind others are never touched. Nothing found writes nothing.
 */
export const claimScript = defineScript(
  'write',
  `
${clock}
${once}
${places}
${lines}
${gathering}
${listing}
${gatheredListing}
${rowOf}
local worker, lease_ms, limit, word = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

-- Whether the queue of a lane limits how many of its runs are running, or are started.
local limited = {}
local function is_limited(lane)
  if limited[lane] == nil then
    local length, from = string.match(lane, '^[^:]+:[^:]+:(%d+):()')
    local q = call('HMGET', P .. 'queue:' .. string.sub(lane, from + length), 'concurrency', 'rate_count')
    limited[lane] = ((q[1] or '') ~= '' or (q[2] or '') ~= '') and 1 or 0
  end
  return limited[lane]
end

local function describe(run, row, holder, until_)
  local thread = row[${at(runFields, 'thread')}]
  local log, place = P .. 'log:' .. thread, row[${at(runFields, 'input')}] - row[${at(runFields, 'base')}] - 1
  for i, value in ipairs(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)})) do row[${runFields.length} + i] = value end
  return { run, cjson.encode(row), call('LLEN', log), call('LINDEX', log, place) or '', holder, until_, is_limited(row[${at(runFields, 'lane')}]) }
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

local asked = cmsgpack.unpack(ARGV[9])
local can, queues, last_owners = {}, asked[2] and {}, {}
for _, workflow in ipairs(asked[1]) do
  local key = workflow[2] .. ':' .. workflow[1]
  local highest = workflow[3] or math.huge
  if not can[key] or can[key] < highest then can[key] = highest end
end
for _, queue in ipairs(asked[2] or {}) do queues[queue] = true end
for _, last in ipairs(asked[5]) do last_owners[last[1]] = last[2] end

-- How many more runs of a queue may be taken: by this claim, at a time, and started in this stretch of time.
local rooms = {}
for _, name in ipairs(call('SMEMBERS', P .. 'queues')) do
  local q = call('HMGET', P .. 'queue:' .. name, 'concurrency', 'rate_count', 'rate_per_ms', 'is_paused')
  local room = { takes = math.huge, places = math.huge, starts = math.huge, is_paused = q[4] == '1' }
  if q[1] ~= '' then room.places = q[1] - (call('HGET', P .. 'counts:' .. name, 'running') or 0) end
  if q[2] ~= '' then
    room.since = now - q[3]
    room.starts = tonumber(q[2])
    local starts = call('HGETALL', P .. 'starts:' .. name)
    for i = 1, #starts, 2 do
      if tonumber(starts[i]) > room.since then room.starts = room.starts - starts[i + 1] end
    end
  end
  rooms[name] = room
end
for _, one in ipairs(asked[4]) do
  rooms[one[1]] = rooms[one[1]] or { places = math.huge, starts = math.huge }
  rooms[one[1]].takes = one[2]
end
local boundless = { takes = math.huge, places = math.huge, starts = math.huge }

-- Lanes by priority. What has slept until now gets ready first.
local by_priority, priorities = {}, {}
local function read_lane(name)
  local state, kind, lane = string.match(name, '^(%d+):([hstbn-]):(.*)$')
  local priority, version, length, from = string.match(lane, '^([^:]+):([^:]+):(%d+):()')
  local queue = string.sub(lane, from + length)
  local highest = can[version .. ':' .. string.sub(lane, from, from + length - 1)]
  if not highest or tonumber(state) > highest or (queues and not queues[queue]) or (rooms[queue] and rooms[queue].is_paused) then return end
  return { name = name, state = state, kind = kind, lane = lane, priority = tonumber(priority), queue = queue, room = rooms[queue] or boundless }
end
local function add_lane(lane)
  if not by_priority[lane.priority] then
    by_priority[lane.priority] = { is_known = {} }
    priorities[#priorities + 1] = lane.priority
  end
  local lanes = by_priority[lane.priority]
  if not lanes.is_known[lane.name] then
    lanes.is_known[lane.name] = true
    lanes[#lanes + 1] = lane
  end
end
for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do
  local lane = read_lane(name)
  if lane and lane.kind ~= '-' then add_lane(lane) end
  if lane and lane.kind == '-' then
    local woken = call('ZRANGEBYSCORE', P .. 'lane:' .. name, '-inf', now, 'WITHSCORES')
    for i = 1, #woken, 2 do show(name, string.sub(woken[i], 1, 16), string.sub(woken[i], 17), woken[i + 1]) end
    if #woken > 0 then
      add_lane(read_lane(lane.state .. ':b:' .. lane.lane))
      add_lane(read_lane(lane.state .. ':n:' .. lane.lane))
    end
    if call('EXISTS', P .. 'lane:' .. name) == 0 then call('SREM', P .. 'lanes', name) end
  end
end
table.sort(priorities, function(a, b) return a > b end)

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
    list_later(r.owner or '', row[${at(runFields, 'lane')}], row[${at(runFields, 'number')}], run, row[${at(runFields, 'created')}], was, 'running')
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
  gathered_lanes[lane] = true
  add_later(P .. 'lane:' .. lane, row[${at(runFields, 'until')}], one.member)
  claims[#claims + 1] = { run, lease, holder, ended }
  answer[#answer + 1] = describe(run, row, holder, ended)
  bytes = bytes + #answer[#answer][4]
end

-- Takes a run if its queue has room for it.
local function take_if_room(one)
  local kind, room = one.lane.kind, one.lane.room
  local is_held, is_suspect, is_new = kind == 'h' or kind == 't', kind == 's' or kind == 't', kind == 'n'
  if room.takes <= 0 or (not is_held and room.places <= 0) or (is_new and room.starts <= 0) or (is_suspect and suspects_left <= 0) then return end
  room.takes = room.takes - 1
  if not is_held then room.places = room.places - 1 end
  if is_suspect then suspects_left = suspects_left - 1 end
  if is_new then
    room.starts = room.starts - 1
    if room.since then starts[one.lane.queue] = (starts[one.lane.queue] or 0) + 1 end
  end
  left = left - 1
  take(one)
end

-- Very large inputs come a few at a time.
local function is_enough()
  return left <= 0 or bytes > 33554432
end

local function by_time(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return a.member < b.member
end

-- Abandoned runs and suspects.
local function take_apart(lanes)
  local found = {}
  for _, lane in ipairs(lanes) do
    if lane.kind ~= 'b' and lane.kind ~= 'n' then
      local size = (lane.kind == 's' or lane.kind == 't') and math.min(suspects_left, left) or left
      local page = size > 0 and call('ZRANGEBYSCORE', P .. 'lane:' .. lane.name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, size) or {}
      if #page == 0 and call('EXISTS', P .. 'lane:' .. lane.name) == 0 then call('SREM', P .. 'lanes', lane.name) end
      for i = 1, #page, 2 do found[#found + 1] = { member = page[i], at = tonumber(page[i + 1]), lane = lane } end
    end
  end
  table.sort(found, by_time)
  for _, one in ipairs(found) do
    if is_enough() then return end
    take_if_room(one)
  end
end

-- The server may compare text by the rules of a language.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The first runs of a lane in the order of turns: the first of each owner, and with fewer owners than that as many of each as there
-- may be turns. Adds a line for each owner.
local function find_ready(lane, last, found)
  local size = math.min(left, lane.room.takes, lane.room.places)
  if lane.kind == 'n' and lane.room.starts <= 0 then size = 0 end
  local turns = P .. 'turns:' .. lane.name
  local first_line, total = #found + 1, 0
  local function page_of(owner, count)
    return call('ZRANGEBYSCORE', ready_key(lane.name, owner), '-inf', now, 'WITHSCORES', 'LIMIT', 0, count)
  end
  local function add_owners(from, to)
    while #found - first_line + 1 < size do
      local wanted = size - (#found - first_line + 1)
      local owners = call('ZRANGEBYLEX', turns, from, to, 'LIMIT', 0, wanted)
      for _, owner in ipairs(owners) do
        local page = page_of(owner, 1)
        if #page > 0 then
          found[#found + 1] = { owner = owner, lane = lane, page = page }
          total = total + 1
        end
        from = '(' .. owner
      end
      if #owners < wanted then return end
    end
  end
  if size > 0 and last then add_owners('(' .. last, '+') end
  if size > 0 then add_owners('-', last and '[' .. last or '+') end
  local lines_count = #found - first_line + 1
  if size > 0 and lines_count == 0 and call('EXISTS', turns) == 0 then call('SREM', P .. 'lanes', lane.name) end
  local most, is_more = 1, true
  while lines_count > 0 and total < size and is_more do
    local before = most
    most = math.max(2 * most, math.ceil(size / lines_count))
    is_more = false
    for i = first_line, #found do
      local line = found[i]
      if #line.page == 2 * before then
        total = total - before
        line.page = page_of(line.owner, most)
        total = total + #line.page / 2
        is_more = is_more or #line.page == 2 * most
      end
    end
  end
end

local function take_in_turn(lanes, last)
  local lines = {}
  for _, lane in ipairs(lanes) do
    if lane.kind == 'b' or lane.kind == 'n' then find_ready(lane, last, lines) end
  end
  local found, owners, position = {}, {}, {}
  for _, line in ipairs(lines) do
    if not position[line.owner] then
      position[line.owner] = 0
      owners[#owners + 1] = line.owner
    end
    for i = 1, #line.page, 2 do found[#found + 1] = { member = line.page[i], at = tonumber(line.page[i + 1]), lane = line.lane, owner = line.owner } end
  end
  if #lines > 1 then
    table.sort(owners, function(a, b)
      local x, y = last and not is_before(last, a), last and not is_before(last, b)
      if x ~= y then return not x end
      return is_before(a, b)
    end)
    for i, owner in ipairs(owners) do position[owner] = i end
    table.sort(found, by_time)
    local counts_of = {}
    for _, one in ipairs(found) do
      local line = one.lane.kind .. position[one.owner] .. ':' .. one.lane.queue
      counts_of[line] = (counts_of[line] or 0) + 1
      one.turn = counts_of[line]
    end
    table.sort(found, function(a, b)
      if a.turn ~= b.turn then return a.turn < b.turn end
      if a.owner ~= b.owner then return position[a.owner] < position[b.owner] end
      if a.lane.kind ~= b.lane.kind then return a.lane.kind < b.lane.kind end
      return by_time(a, b)
    end)
  end
  for _, one in ipairs(found) do
    if is_enough() then return end
    take_if_room(one)
  end
end

local is_done, problem = pcall(function()
  for _, priority in ipairs(priorities) do
    if is_enough() then break end
    take_apart(by_priority[priority])
    if is_enough() then break end
    take_in_turn(by_priority[priority], last_owners[priority])
  end
end)
-- A damaged key breaks the claim; what was taken before it is held by nobody until its lease ends.
write_gathered()
for ready, one in pairs(taken_from) do
  if call('EXISTS', ready) == 0 then remove_later(P .. 'turns:' .. one.lane.name, one.owner) end
end
write_gathered()
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
 * Extends leases. ARGV: 1 life, 2 clock offset, 3 lease ms, 4 { { run, epoch, lease, last position under a lease that is known } … }. Answers for each: 0 not held, 1 held,
 * 2 held with mail. Sent twice it does the same again.
 */
export const renewScript = defineScript(
  'free',
  `
${clock}
${foreignOf}
${places}
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
