import { operationFields, runFields, threadFields } from '../rows.ts'
import { listing, setLabel } from './listing.ts'
import { at, clock, defineScript, once, places, quoted, rowOf } from './script.ts'

/** ARGV: 1 life, then runs. Answers their rows. */
export const readRunsScript = defineScript(
  'read',
  `
${rowOf}
local answer = {}
for i = 2, #ARGV do answer[i - 1] = cjson.encode((row_of(ARGV[i]))) end
return answer
`,
)

/** ARGV: 1 life, 2 thread. Answers { its row, length of its log }. */
export const readThreadScript = defineScript(
  'read',
  `return { cjson.encode(call('HMGET', P .. 'thread:' .. ARGV[2], ${quoted(threadFields)})), call('LLEN', P .. 'log:' .. ARGV[2]) }`,
)

/** ARGV: 1 life, 2 operation. Answers its row. */
export const readOperationScript = defineScript(
  'read',
  `return call('HMGET', P .. 'operation:' .. ARGV[2], ${quoted(operationFields)})`,
)

/** Unsure operations. ARGV: 1 life, 2 opened then or later, 3 without so many, 4 at most so many. Answers { operation, row, … }. */
export const listUnsureScript = defineScript(
  'read',
  `
local answer = {}
for _, operation in ipairs(call('ZRANGEBYSCORE', P .. 'unsure', ARGV[2], '+inf', 'LIMIT', ARGV[3], ARGV[4])) do
  answer[#answer + 1] = operation
  answer[#answer + 1] = call('HMGET', P .. 'operation:' .. operation, ${quoted(operationFields)})
end
return answer
`,
)

/** ARGV: 1 life, 2 thread, 3 position. Answers the latest snapshot at or before it, or nothing. */
export const readSnapshotScript = defineScript(
  'read',
  `return call('ZREVRANGEBYSCORE', P .. 'snapshots:' .. ARGV[2], ARGV[3], '-inf', 'LIMIT', 0, 1)[1]`,
)

/**
 * A stretch of a log without contents. ARGV: 1 life, 2 thread, 3 after this position, 4 up to this one or empty, 5 at most so many, 6 at most about
 * so many bytes. Answers { life or 0, head, first position, entries, labels }.
 */
export const readCheckpointsScript = defineScript(
  'read',
  `
local thread, limit, max_bytes = ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'deleted')
if not t[1] or (t[4] or '') ~= '' then return { 0, 0, 0, {}, {} } end
local log, base = P .. 'log:' .. thread, tonumber(t[2] or 0)
local head = base + call('LLEN', log)
local first = math.max(base, tonumber(ARGV[3])) + 1
local last = ARGV[4] == '' and head or math.min(head, tonumber(ARGV[4]))
local entries, bytes, seq = {}, 0, first
while seq <= last and #entries < limit and bytes < max_bytes do
  local size = math.min(256, limit - #entries, last - seq + 1)
  for _, entry in ipairs(call('LRANGE', log, seq - base - 1, seq - base + size - 2)) do
    entry = string.sub(entry, 1, string.find(entry, '\\n', 1, true))
    entries[#entries + 1] = entry
    bytes = bytes + #entry
  end
  seq = seq + size
end
return { tonumber(t[3] or 1), head, first, entries, call('HGETALL', P .. 'labels:' .. thread) }
`,
)

/**
 * Stretches of many logs. ARGV: 1 life, 2 at most about so many bytes, then for each thread, after this position, up to this one or empty, at most
 * so many, and the types whose entries come whole, each between line breaks, or empty for all. Answers for each { life or 0, head, first position, entries }, and
 * stops after the one that made it too large.
 */
export const readLogsScript = defineScript(
  'read',
  `
local max_bytes, answer, bytes = tonumber(ARGV[2]), {}, 0
for at = 3, #ARGV, 5 do
  if bytes >= max_bytes then break end
  local thread, limit, whole = ARGV[at], tonumber(ARGV[at + 3]), ARGV[at + 4]
  local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'deleted')
  if not t[1] or (t[4] or '') ~= '' then
    answer[#answer + 1] = { 0, 0, 0, {} }
  else
    local log, base = P .. 'log:' .. thread, tonumber(t[2] or 0)
    local head = base + call('LLEN', log)
    local first = math.max(base, tonumber(ARGV[at + 1])) + 1
    local last = ARGV[at + 2] == '' and head or math.min(head, tonumber(ARGV[at + 2]))
    local entries, seq = {}, first
    while seq <= last and #entries < limit and bytes < max_bytes do
      local size = math.min(256, limit - #entries, last - seq + 1)
      for _, entry in ipairs(call('LRANGE', log, seq - base - 1, seq - base + size - 2)) do
        if whole ~= '' and not string.find(whole, '\\n' .. (string.match(entry, '^%d+ .%["([%a_]+)"') or '') .. '\\n', 1, true) then
          entry = string.sub(entry, 1, string.find(entry, '\\n', 1, true))
        end
        entries[#entries + 1] = entry
        bytes = bytes + #entry
      end
      seq = seq + size
    end
    answer[#answer + 1] = { tonumber(t[3] or 1), head, first, entries }
  end
end
return answer
`,
)

/**
 * Single records. ARGV: 1 life, then thread, position, thread, position, … Answers their entries, empty where there is none; of large ones
 * only the first few.
 */
export const readRecordsScript = defineScript(
  'read',
  `
local answer, bytes = {}, 0
for i = 2, #ARGV, 2 do
  if bytes > 4194304 then break end
  local t = call('HMGET', P .. 'thread:' .. ARGV[i], 'number', 'base', 'deleted')
  local index = t[1] and (t[3] or '') == '' and ARGV[i + 1] - (t[2] or 0) - 1
  answer[i / 2] = index and index >= 0 and call('LINDEX', P .. 'log:' .. ARGV[i], index) or ''
  bytes = bytes + #answer[i / 2]
end
return answer
`,
)

/** ARGV: 1 life, 2 thread, 3 label. Answers its position and the entry there, or nothing. */
export const readLabelScript = defineScript(
  'read',
  `
local seq = call('HGET', P .. 'labels:' .. ARGV[2], 'L' .. ARGV[3])
if not seq then return {} end
local entry = call('LINDEX', P .. 'log:' .. ARGV[2], seq - (call('HGET', P .. 'thread:' .. ARGV[2], 'base') or 0) - 1)
return { tonumber(seq), string.sub(entry, 1, string.find(entry, '\\n', 1, true)) }
`,
)

/**
 * Labels a checkpoint. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 thread, 6 position, 7 label, 8 owner. Answers 1, or 0 where there is no
 * checkpoint. An entry says whether it is one in the letter after its checksum.
 */
export const tagScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${places}
${listing}
${setLabel}
local t = call('HMGET', P .. 'thread:' .. ARGV[5], 'number', 'base', 'deleted')
local index = t[1] and (t[3] or '') == '' and ARGV[6] - (t[2] or 0) - 1
local entry = index and index >= 0 and call('LINDEX', P .. 'log:' .. ARGV[5], index)
if not entry or not string.find(entry, '^%d+ [CD]') then return keep(0) end
set_label(ARGV[5], ARGV[7], ARGV[6], run_of_entry(entry, ARGV[5], ARGV[8]))
return keep(1)
`,
)

/** Reads the filter of a list: { workflow or false, queue or false, statuses or false, prefix that no workflow may have or false, earliest time or false }. */
const wantedRuns = `
local wanted = cmsgpack.unpack(ARGV[2])
local statuses = wanted[3] and {}
for _, status in ipairs(wanted[3] or {}) do statuses[status] = true end
local after = tonumber(wanted[5] or '-inf')

-- Whether a workflow and queue, as they stand in a lane or a bucket, are wanted.
local function is_named(names)
  -- A damaged lane names nothing.
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
 * Runs, newest first. ARGV: 1 life, 2 the filter, 3 created before this time, 4 or at it with a smaller number than this, 5 at most so many,
 * 6 owner, 7 `listed`, `label` or `buckets`, 8 the label. Answers { the time and the number where it stopped looking, empty at the end, run, row, run, row, … }: it looks at a
 * bounded number of rows, so that a filter that finds little does not hold up the server.
 */
export const listRunsScript = defineScript(
  'read',
  `
${rowOf}
${places}
${listing}
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

-- How many runs of an index are newer than where the list begins.
local function first_rank(key)
  local rank = call('ZCOUNT', key, '(' .. before, '+inf')
  local last = rank + call('ZCOUNT', key, before, before)
  while rank < last do
    local middle = math.floor((rank + last) / 2)
    if tonumber(string.sub(call('ZREVRANGE', key, middle, middle)[1], 1, 16)) >= below then rank = middle + 1 else last = middle end
  end
  return rank
end

-- Puts the next run of an index in front of it; false where there is none.
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

-- Indexes by the run in front, the oldest first: the next one is taken from the end.
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
 * Runs of a thread, in the order of their numbers. ARGV: 1 life, 2 the filter, 3 thread, 4 after this number, 5 label or empty. Answers { the number where it stopped
 * looking or empty, run, row, run, row, … }.
 */
export const listThreadRunsScript = defineScript(
  'read',
  `
${rowOf}
${places}
${listing}
${wantedRuns}
local thread = ARGV[3]
local only = call('HGET', P .. 'thread:' .. thread, 'run')
local labelled = ARGV[5] ~= '' and (call('HGET', P .. 'labels:' .. thread, 'R' .. ARGV[5]) or '')
local page
if only and only ~= '' then page = ARGV[4] == '0' and { only } or {}
else page = call('ZRANGEBYSCORE', P .. 'runs:' .. thread, '(' .. ARGV[4], '+inf', 'LIMIT', 0, 2000) end
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

/**
 * Threads in order of creation. ARGV: 1 life, 2 the index (`owner-threads:…` or `threads`), 3 above this number, 4 at most so many.
 * Answers thread, row, length of log, …
 */
export const listThreadsScript = defineScript(
  'read',
  `
local answer = {}
for i, thread in ipairs(call('ZRANGEBYSCORE', P .. ARGV[2], '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])) do
  answer[3 * i - 2] = thread
  answer[3 * i - 1] = cjson.encode(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)}))
  answer[3 * i] = call('LLEN', P .. 'log:' .. thread)
end
return answer
`,
)

/** ARGV: 1 life, 2 clock offset. Answers the time: by a script, so that a cluster asks the node that has the namespace. */
export const nowScript = defineScript('read', `${clock} return now`)
