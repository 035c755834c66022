import { runFields } from '../../rows.ts'
import { at } from '../script.ts'

/** Puts runs under a lease. Needs `askedLanes`, `describeRun`, `gatheredWrites` and `gatheredRunLists`. */
export const takeRun = `
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

-- Takes a run if its queue has room for it, and returns whether it has.
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

-- Of runs with very large inputs a claim takes only a few.
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

-- Takes candidates in order. If there are more of them, it stops at the first without room and returns true.
local function take_from(found, is_more)
  for _, one in ipairs(found) do
    if is_enough() then return false end
    if not take_if_room(one) and is_more then return true end
  end
  return false
end
`
