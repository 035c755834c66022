import { runFields } from '../rows.ts'
import { isOver } from './parts/is-over.ts'
import { laneNames } from './parts/lane-names.ts'
import { runLists } from './parts/run-lists.ts'
import { runRow } from './parts/run-row.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { at, defineScript } from './script.ts'

/** Reads the filter of a list: { workflow or false, queue or false, statuses or false, prefix of workflows to leave out or false, created after this time or false }. */
const wantedRuns = `
local wanted = cmsgpack.unpack(ARGV[2])
local statuses = wanted[3] and {}
for _, status in ipairs(wanted[3] or {}) do statuses[status] = true end
local after = tonumber(wanted[5] or '-inf')

-- Whether the workflow and queue in the name of a lane or bucket are wanted.
local function is_named(names)
  -- A damaged lane has no names.
  if not names or not string.find(names, '^%d+:') then return false end
  if not wanted[1] and not wanted[2] and not wanted[4] then return true end
  local length, from = string.match(names, '^(%d+):()')
  local workflow = string.sub(names, from, from + length - 1)
  if wanted[1] and workflow ~= wanted[1] then return false end
  if wanted[4] and string.sub(workflow, 1, #wanted[4]) == wanted[4] then return false end
  return not wanted[2] or string.sub(names, from + length) == wanted[2]
end

local function is_wanted(row)
  if statuses and not statuses[row[${at(runFields, 'status')}]] then return false end
  return is_named(names_in(row[${at(runFields, 'lane')}]))
end
`

/**
 * Runs, newest first. ARGV: 1 namespace id, 2 the filter, 3 created before this time, 4 or at it with a smaller number than this, 5 at most so many,
 * 6 owner, 7 `listed`, `label` or `buckets`, 8 the label. Answers { the time and the number where it stopped looking, empty at the end, run, row, run, row, … }: it looks at a
 * bounded number of rows, so that a filter that finds little does not hold up the server.
 */
export const listRunsScript = defineScript(
  'read',
  `
${runRow}
${laneNames}
${runLists}
${wantedRuns}
local before, below, limit, owner = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local keys = {}
if ARGV[7] == 'listed' then
  keys[1] = P .. 'listed:' .. owner
elseif ARGV[7] == 'label' then
  keys[1] = labelled_key(owner, ARGV[8])
else
  for _, bucket in ipairs(call('SMEMBERS', P .. 'buckets:' .. owner)) do
    local status, names = string.match(bucket, '^(%a+):(.*)$')
    if (not statuses or statuses[status]) and is_named(names) then keys[#keys + 1] = bucket_key(owner, bucket) end
  end
end

-- The number of runs in an index that are newer than where the list begins.
local function first_rank(key)
  local rank = call('ZCOUNT', key, '(' .. before, '+inf')
  local last = rank + call('ZCOUNT', key, before, before)
  while rank < last do
    local middle = math.floor((rank + last) / 2)
    if tonumber(string.sub(call('ZREVRANGE', key, middle, middle)[1], 1, 16)) >= below then rank = middle + 1 else last = middle end
  end
  return rank
end

-- Reads the next run of an index. False if there is none.
local function advance(one)
  if one.at >= #one.page then
    one.page = call('ZREVRANGE', one.key, one.rank, one.rank + one.size - 1, 'WITHSCORES')
    one.rank, one.size, one.at = one.rank + one.size, math.min(100, one.size * 2), 0
    if #one.page == 0 then return false end
  end
  one.member, one.created = one.page[one.at + 1], tonumber(one.page[one.at + 2])
  one.at = one.at + 2
  return one.created > after
end

local function is_older(a, b)
  if a.created ~= b.created then return a.created < b.created end
  return a.member < b.member
end

-- Merges the indexes: they are sorted by their next run, oldest first, and the newest is taken from the end.
local fronts = {}
for _, key in ipairs(keys) do
  local one = { key = key, rank = before == '+inf' and 0 or first_rank(key), size = 8, at = 0, page = {} }
  if advance(one) then fronts[#fronts + 1] = one end
end
table.sort(fronts, is_older)

local answer, looked_at = { '', '' }, 0
while #fronts > 0 and limit > 0 do
  local one = table.remove(fronts)
  local run = string.sub(one.member, 17)
  local row = row_of(run)
  looked_at = looked_at + 1
  if row[1] and is_wanted(row) then
    answer[#answer + 1] = run
    answer[#answer + 1] = cjson.encode(row)
    limit = limit - 1
  end
  if looked_at >= 2000 and limit > 0 then
    answer[1], answer[2] = string.format('%.0f', one.created), string.format('%.0f', tonumber(string.sub(one.member, 1, 16)))
    return answer
  end
  if advance(one) then
    local low, high = 1, #fronts + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if is_older(fronts[middle], one) then low = middle + 1 else high = middle end
    end
    table.insert(fronts, low, one)
  end
end
return answer
`,
)

/**
 * Runs of a thread, in the order of their numbers. ARGV: 1 namespace id, 2 the filter, 3 thread, 4 after this number, 5 label or empty. Answers { the number where it stopped
 * looking or empty, run, row, run, row, … }.
 */
export const listThreadRunsScript = defineScript(
  'read',
  `
${runRow}
${isOver}
${laneNames}
${threadRuns}
${runLists}
${wantedRuns}
local thread = ARGV[3]
local labelled = ARGV[5] ~= '' and (call('HGET', P .. 'labels:' .. thread, 'R' .. ARGV[5]) or '')
local page = runs_after(thread, ARGV[4], 2000)
local answer, row = { '' }
for _, run in ipairs(page) do
  row = row_of(run)
  if row[1] and is_wanted(row) and tonumber(row[${at(runFields, 'created')}]) > after and (not labelled or labelled == run) then
    answer[#answer + 1] = run
    answer[#answer + 1] = cjson.encode(row)
  end
end
if #page == 2000 then answer[1] = row[${at(runFields, 'number')}] end
return answer
`,
)
