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

-- Only what is still held under the lease of this claim: when it is asked for again, something may have happened since.
local function describe(claims)
  local answer = { claims[1] }
  for i = 2, #claims do
    local run, lease, holder, until_ = unpack(claims[i])
    local row = call('HMGET', P .. 'run:' .. run, ${quoted(runFields)})
    if row[${at(runFields, 'lease')}] == lease then
      local thread = row[${at(runFields, 'thread')}]
      answer[#answer + 1] = { run, row, call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)}), call('LLEN', P .. 'log:' .. thread),
        call('LINDEX', P .. 'log:' .. thread, tonumber(row[${at(runFields, 'input')}]) - tonumber(row[${at(runFields, 'base')}]) - 1) or '', holder, until_ }
    end
  end
  return answer
end
if kept then return describe(kept) end

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
  local state, kind, priority, version, length, from = string.match(name, '^(%d+):([s-]):([^:]+):([^:]+):(%d+):()')
  local highest = can[version .. ':' .. string.sub(name, from, from + length - 1)]
  if highest and tonumber(state) <= highest and (not queues or queues[string.sub(name, from + length)]) then
    found_lanes[#found_lanes + 1] = { name = name, priority = tonumber(priority), is_suspect = kind == 's' }
  end
end
table.sort(found_lanes, function(a, b) return a.priority > b.priority end)

-- Lanes of one priority are looked at together; those of a lower one only while there is room.
local found, suspects = {}, 0
for i, lane in ipairs(found_lanes) do
  if #found - suspects + math.min(suspects, suspect_limit) >= limit and found_lanes[i - 1].priority > lane.priority then break end
  local size = lane.is_suspect and suspect_limit or limit
  local page = size > 0 and call('ZRANGEBYSCORE', P .. 'lane:' .. lane.name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, size) or {}
  for j = 1, #page, 2 do
    found[#found + 1] = { member = page[j], at = tonumber(page[j + 1]), lane = lane }
    if lane.is_suspect then suspects = suspects + 1 end
  end
end
if #found == 0 then return { string.format('%.17g', now) } end
table.sort(found, function(a, b)
  if a.lane.priority ~= b.lane.priority then return a.lane.priority > b.lane.priority end
  if a.at ~= b.at then return a.at < b.at end
  return a.member < b.member
end)

local function take(one, lease)
  local run = string.sub(one.member, 17)
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'status', 'epoch', 'claims', 'wait', 'thread', 'holder', 'until', 'lane', 'number')
  local until_ = now + lease_ms
  call('HSET', key, 'status', 'running', 'epoch', r[2] + 1, 'lease', lease, 'until', until_, 'holder', worker, 'claims', r[3] + 1, 'end', '')
  if r[4] ~= '' then
    call('SREM', P .. 'waiting:' .. r[4], run)
    call('HSET', key, 'wait', '')
  end
  local lane = lane_of(string.match(one.lane.name, '^%d+'), r[8], r[3] + 1)
  if lane ~= one.lane.name then hide(one.lane.name, r[9], run) end
  show(lane, r[9], run, until_)
  if r[1] == 'running' then return { run, lease, r[6], r[7] } end
  call('HINCRBY', P .. 'thread:' .. r[5], 'held', 1)
  return { run, lease, '', '' }
end

local claims = { string.format('%.17g', now) }
for _, one in ipairs(found) do
  if #claims > limit then break end
  if not one.lane.is_suspect or suspect_limit > 0 then
    if one.lane.is_suspect then suspect_limit = suspect_limit - 1 end
    claims[#claims + 1] = take(one, word .. #claims)
  end
end
return describe(keep(claims))
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
