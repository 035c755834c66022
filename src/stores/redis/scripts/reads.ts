import { operationFields, runFields, threadFields } from '../rows.ts'
import { at, clock, defineScript, once, quoted, rowOf, setLabel } from './script.ts'

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
 * A stretch of a log. ARGV: 1 life, 2 thread, 3 after this position, 4 up to this one or empty, 5 at most so many, 6 at most about so many
 * bytes, 7 `1` to leave contents out, 8 `1` to add the labels. Answers { life or 0, head, first position, entries, labels }.
 */
export const readLogScript = defineScript(
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
    if ARGV[7] == '1' then entry = string.sub(entry, 1, string.find(entry, '\\n', 1, true)) end
    entries[#entries + 1] = entry
    bytes = bytes + #entry
  end
  seq = seq + size
end
return { tonumber(t[3] or 1), head, first, entries, ARGV[8] == '1' and call('HGETALL', P .. 'labels:' .. thread) or {} }
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
 * Labels a checkpoint. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 thread, 6 position, 7 label. Answers 1, or 0 where there is no
 * checkpoint. An entry says whether it is one in the letter after its checksum.
 */
export const tagScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${setLabel}
local t = call('HMGET', P .. 'thread:' .. ARGV[5], 'number', 'base', 'deleted')
local index = t[1] and (t[3] or '') == '' and ARGV[6] - (t[2] or 0) - 1
local entry = index and index >= 0 and call('LINDEX', P .. 'log:' .. ARGV[5], index)
if not entry or not string.find(entry, '^%d+ C') then return keep(0) end
set_label(ARGV[5], ARGV[7], ARGV[6])
return keep(1)
`,
)

/**
 * Runs, newest first. ARGV: 1 life, 2 the index (`owner-runs:…` or `runs:…`), 3 below this number or `+inf`, 4 at most so many,
 * 5 { workflow or false, queue or false, statuses or false, prefix that no workflow may have or false }, 6 the thread or empty. Answers { the number where it stopped looking or 0, run, row, run, row, … }:
 * it looks at a bounded number of rows, so that a filter that finds little does not hold up the server.
 */
export const listRunsScript = defineScript(
  'read',
  `
${rowOf}
local index, limit = P .. ARGV[2], tonumber(ARGV[4])
local wanted = cmsgpack.unpack(ARGV[5])
local statuses = wanted[3] and {}
for _, status in ipairs(wanted[3] or {}) do statuses[status] = true end
local function is_wanted(row)
  if statuses and not statuses[row[${at(runFields, 'status')}]] then return false end
  if not wanted[1] and not wanted[2] and not wanted[4] then return true end
  local length, from = string.match(row[${at(runFields, 'lane')}], '^[^:]+:[^:]+:(%d+):()')
  if wanted[1] and string.sub(row[${at(runFields, 'lane')}], from, from + length - 1) ~= wanted[1] then return false end
  if wanted[4] and string.sub(row[${at(runFields, 'lane')}], from, from + math.min(length, #wanted[4]) - 1) == wanted[4] then return false end
  return not wanted[2] or string.sub(row[${at(runFields, 'lane')}], from + length) == wanted[2]
end

-- The only run of a thread stands in the thread's row.
local only = ARGV[6] ~= '' and call('HGET', P .. 'thread:' .. ARGV[6], 'run')
local function page_of(before, size)
  if not only or only == '' then return call('ZREVRANGEBYSCORE', index, before, '-inf', 'WITHSCORES', 'LIMIT', 0, size) end
  local number = row_of(only)[${at(runFields, 'number')}]
  return (ARGV[3] == '+inf' or tonumber(number) < tonumber(ARGV[3])) and { only, number } or {}
end

local answer, below, looked_at = { 0 }, ARGV[3], 0
while limit > 0 do
  local size = math.min(100, limit)
  if statuses or wanted[1] or wanted[2] or wanted[4] then size = 100 end
  local page = page_of(below == '+inf' and below or '(' .. below, size)
  for i = 1, #page, 2 do
    local row = row_of(page[i])
    below = page[i + 1]
    if is_wanted(row) then
      answer[#answer + 1] = page[i]
      answer[#answer + 1] = cjson.encode(row)
      limit = limit - 1
      if limit == 0 then return answer end
    end
  end
  looked_at = looked_at + size
  if #page < 2 * size then return answer end
  if looked_at >= 2000 then
    answer[1] = tonumber(below)
    return answer
  end
end
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
