import { runFields, threadFields } from '../rows.ts'
import { at, clock, defineScript, lines, once, quoted } from './script.ts'

/**
 * Takes runs. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 worker, 6 lease ms, 7 limit, 8 a random word for lease ids,
 * 9 { { { workflow, version, highest state version or false } … }, queues or false, how many suspects or false }.
 *
 * Answers { now, { run, its row, its thread's row, length of the log, input entry, holder it was taken from, end of that lease }, … }.
 * Lanes hold only heads of lines, so sleeping runs and those behind others are never touched. Nothing found writes nothing.
 */
export const claimScript = defineScript(
  'write',
  `
${clock}
${once}
${lines}
local worker, lease_ms, limit, word = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

local function describe(run, row, holder, until_)
  local thread = row[${at(runFields, 'thread')}]
  local place = row[${at(runFields, 'input')}] - row[${at(runFields, 'base')}] - 1
  return { run, cjson.encode(row), cjson.encode(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)})), call('LLEN', P .. 'log:' .. thread),
    call('LINDEX', P .. 'log:' .. thread, place) or '', holder, until_ }
end

if kept then
  -- Asked for again: only what is still held under the leases of that claim, since something may have happened meanwhile.
  local answer = { kept[1] }
  for i = 2, #kept do
    local row = call('HMGET', P .. 'run:' .. kept[i][1], ${quoted(runFields)})
    if row[${at(runFields, 'lease')}] == kept[i][2] then answer[#answer + 1] = describe(kept[i][1], row, kept[i][3], kept[i][4]) end
  end
  return answer
end

local asked = cmsgpack.unpack(ARGV[9])
local can, queues = {}, asked[2] and {}
for _, workflow in ipairs(asked[1]) do
  local key = workflow[2] .. ':' .. workflow[1]
  local highest = workflow[3] or math.huge
  if not can[key] or can[key] < highest then can[key] = highest end
end
for _, queue in ipairs(asked[2] or {}) do queues[queue] = true end

local suspect_limit = math.min(limit, asked[3] or limit)

local found_lanes = {}
for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do
  local state, kind, priority, version, length, from = string.match(name, '^(%d+):([hst-]):([^:]+):([^:]+):(%d+):()')
  local highest = can[version .. ':' .. string.sub(name, from, from + length - 1)]
  if highest and tonumber(state) <= highest and (not queues or queues[string.sub(name, from + length)]) then
    found_lanes[#found_lanes + 1] = { name = name, priority = tonumber(priority), is_suspect = kind == 's' or kind == 't', is_held = kind == 'h' or kind == 't' }
  end
end
table.sort(found_lanes, function(a, b) return a.priority > b.priority end)

-- Lanes of one priority are looked at together; those of a lower one only while there is room.
local found, suspects = {}, 0
for i, lane in ipairs(found_lanes) do
  if #found - suspects + math.min(suspects, suspect_limit) >= limit and found_lanes[i - 1].priority > lane.priority then break end
  local size = lane.is_suspect and suspect_limit or limit
  local page = size > 0 and call('ZRANGEBYSCORE', P .. 'lane:' .. lane.name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, size) or {}
  if #page == 0 and call('EXISTS', P .. 'lane:' .. lane.name) == 0 then call('SREM', P .. 'lanes', lane.name) end
  for j = 1, #page, 2 do
    found[#found + 1] = { member = page[j], at = tonumber(page[j + 1]), lane = lane }
    if lane.is_suspect then suspects = suspects + 1 end
  end
end
if #found == 0 then return { now } end
table.sort(found, function(a, b)
  if a.lane.priority ~= b.lane.priority then return a.lane.priority > b.lane.priority end
  if a.lane.is_held ~= b.lane.is_held then return a.lane.is_held end
  if a.at ~= b.at then return a.at < b.at end
  return a.member < b.member
end)

local answer, claims, bytes = { now }, { now }, 0
local function take(one, lease)
  local run = string.sub(one.member, 17)
  local key = P .. 'run:' .. run
  local row = call('HMGET', key, ${quoted([...runFields, 'wait'])})
  local wait = table.remove(row)
  local was, holder, ended = row[${at(runFields, 'status')}], row[${at(runFields, 'holder')}], row[${at(runFields, 'until')}]
  local epoch, count, until_ = row[${at(runFields, 'epoch')}] + 1, row[${at(runFields, 'claims')}] + 1, now + lease_ms
  call('HSET', key, 'status', 'running', 'epoch', epoch, 'lease', lease, 'until', until_, 'holder', worker, 'claims', count, 'end', '')
  row[${at(runFields, 'status')}], row[${at(runFields, 'epoch')}], row[${at(runFields, 'lease')}] = 'running', tostring(epoch), lease
  row[${at(runFields, 'until')}], row[${at(runFields, 'holder')}] = tostring(until_), worker
  row[${at(runFields, 'claims')}], row[${at(runFields, 'end')}] = tostring(count), ''
  if wait ~= '' then
    call('SREM', P .. 'waiting:' .. wait, run)
    call('HSET', key, 'wait', '')
  end
  local number = row[${at(runFields, 'number')}]
  local lane = lane_of(string.match(one.lane.name, '^%d+'), row[${at(runFields, 'lane')}], count, 'running')
  if lane ~= one.lane.name then hide(one.lane.name, number, run) end
  show(lane, number, run, until_)
  if was ~= 'running' then holder, ended = '', '' end
  claims[#claims + 1] = { run, lease, holder, ended }
  answer[#answer + 1] = describe(run, row, holder, ended)
  bytes = bytes + #answer[#answer][5]
end

for _, one in ipairs(found) do
  -- Very large inputs come a few at a time.
  if #claims > limit or bytes > 33554432 then break end
  if not one.lane.is_suspect or suspect_limit > 0 then
    if one.lane.is_suspect then suspect_limit = suspect_limit - 1 end
    take(one, word .. #claims)
  end
end
keep(claims)
return answer
`,
)

/**
 * Extends leases. ARGV: 1 life, 2 clock offset, 3 lease ms, 4 { { run, epoch, lease } … }. Answers for each: 0 not held, 1 held,
 * 2 held with mail. Sent twice it does the same again.
 */
export const renewScript = defineScript(
  'free',
  `
${clock}
${lines}
local until_ = now + tonumber(ARGV[3])
local answer = {}
for i, asked in ipairs(cmsgpack.unpack(ARGV[4])) do
  local run = asked[1]
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'epoch', 'lease', 'mail', 'thread')
  if r[1] ~= asked[2] or r[2] ~= asked[3] or r[2] == '' then
    answer[i] = 0
  else
    call('HSET', key, 'until', until_)
    show_if_head(run, r[4])
    answer[i] = r[3] == '0' and 1 or 2
  end
end
return answer
`,
)
