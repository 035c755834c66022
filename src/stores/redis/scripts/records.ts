import { recordFields } from '../record-row.ts'
import { records } from './parts/records.ts'
import { at, clock, defineScript, once, quoted } from './script.ts'

/** Adds a record to the answer, key and row, where it is there and has not expired. */
const addRecord = `
local answer = {}
local function add(collection, key)
  local row = call('HMGET', P .. 'record:' .. #collection .. ':' .. collection .. key, ${quoted(recordFields)})
  local expires = row[${at(recordFields, 'expires')}]
  -- A damaged number is shown: its checksum does not match.
  if not expires or expires ~= '' and (tonumber(expires) or math.huge) <= now then return false end
  answer[#answer + 1] = key
  answer[#answer + 1] = row
  return true
end
`

/**
 * Records of a collection in the order of an index. ARGV: 1 namespace id, 2 clock offset, 3 collection, 4 index, 5 and 6 bounds as ZRANGEBYLEX
 * takes them, 7 empty or for the other direction, 8 at most so many. Answers { key, row, key, row, … }.
 */
export const readRecordsScript = defineScript(
  'read',
  `
${clock}
${addRecord}
local index, least, greatest, left = P .. ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[8])
while left > 0 do
  local size = math.min(left, 1000)
  local keys = ARGV[7] == '' and call('ZRANGEBYLEX', index, least, greatest, 'LIMIT', 0, size)
    or ARGV[7] ~= '' and call('ZREVRANGEBYLEX', index, greatest, least, 'LIMIT', 0, size)
  for _, key in ipairs(keys) do
    if add(ARGV[3], key) then left = left - 1 end
  end
  if #keys < size then break end
  if ARGV[7] == '' then least = '(' .. keys[size] else greatest = '(' .. keys[size] end
end
return answer
`,
)

/** Records by their keys. ARGV: 1 namespace id, 2 clock offset, 3 collection, then keys. Answers like \`readRecordsScript\`. */
export const readRecordsByKeyScript = defineScript(
  'read',
  `
${clock}
${addRecord}
for i = 4, #ARGV do add(ARGV[3], ARGV[i]) end
return answer
`,
)

/**
 * Keys by how much of some fields they have. ARGV: 1 namespace id, 2 at most so many, 3 how many fields, then the indexes of these, then those in which
 * a key must be, too. Answers { weights, { key, weight, key, weight, … } }. Weights are those of `fieldWeights`, sums of which are few: only
 * keys of the greatest are put in order.
 */
export const searchRecordsScript = defineScript(
  'read',
  `
local limit, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local counts, all, weights = {}, 0, {}
for i = 1, count do
  counts[i] = call('ZCARD', P .. 'index:' .. ARGV[3 + i])
  all = all + counts[i]
end
local sums = {}
for i = 1, count do
  weights[i] = math.floor(1000 * math.log(1 + (all + 1) / (counts[i] + 0.5)) + 0.5)
  for _, key in ipairs(call('ZRANGE', P .. 'index:' .. ARGV[3 + i], 0, -1)) do sums[key] = (sums[key] or 0) + weights[i] end
end
local keys_of, order = {}, {}
for key, sum in pairs(sums) do
  if not keys_of[sum] then
    keys_of[sum] = {}
    order[#order + 1] = sum
  end
  table.insert(keys_of[sum], key)
end
table.sort(order, function(a, b) return a > b end)
local function has_all(key)
  for i = 4 + count, #ARGV do
    if not call('ZSCORE', P .. 'index:' .. ARGV[i], key) then return false end
  end
  return true
end
-- Bytewise: Lua compares as the server's locale does, which Redis sets to C.
local hits = {}
for _, sum in ipairs(order) do
  if #hits >= 2 * limit then break end
  table.sort(keys_of[sum], function(a, b) return a > b end)
  for _, key in ipairs(keys_of[sum]) do
    if #hits >= 2 * limit then break end
    if has_all(key) then
      hits[#hits + 1] = key
      hits[#hits + 1] = sum
    end
  end
end
return { weights, hits }
`,
)

/**
 * Records of all owners. ARGV: 1 namespace id, 2 clock offset, 3 and 4 collection and key of the last one before, or empty, 5 at most so many.
 * Answers { collection, keys and rows, collection, keys and rows, … }.
 */
export const scanRecordsScript = defineScript(
  'read',
  `
${clock}
${addRecord}
local pages, collection, least, left = {}, ARGV[3], '(' .. ARGV[4], tonumber(ARGV[5])
local function next_collection(bound) return call('ZRANGEBYLEX', P .. 'collections', bound, '+', 'LIMIT', 0, 1)[1] end
if collection == '' then collection, least = next_collection('-'), '-' end
while collection and left > 0 do
  answer = {}
  local size = math.min(left, 1000)
  local keys = call('ZRANGEBYLEX', P .. 'records:' .. collection, least, '+', 'LIMIT', 0, size)
  for _, key in ipairs(keys) do
    if add(collection, key) then left = left - 1 end
  end
  if #answer > 0 then
    pages[#pages + 1] = collection
    pages[#pages + 1] = answer
  end
  if #keys < size then collection, least = next_collection('(' .. collection), '-' else least = '(' .. keys[size] end
end
return pages
`,
)

/**
 * Records of a thread. ARGV: 1 namespace id, 2 clock offset, 3 thread, 4 where to begin as ZRANGEBYLEX takes it, 5 at most so many. Answers
 * { record, row, record, row, … }.
 */
export const scanThreadRecordsScript = defineScript(
  'read',
  `
${clock}
local answer, least, left = {}, ARGV[4], tonumber(ARGV[5])
while left > 0 do
  local size = math.min(left, 1000)
  local found = call('ZRANGEBYLEX', P .. 'thread-records:' .. ARGV[3], least, '+', 'LIMIT', 0, size)
  for _, record in ipairs(found) do
    local row = call('HMGET', P .. 'record:' .. record, ${quoted(recordFields)})
    local expires = row[${at(recordFields, 'expires')}]
    if expires and (expires == '' or (tonumber(expires) or math.huge) > now) then
      answer[#answer + 1] = record
      answer[#answer + 1] = row
      left = left - 1
    end
  end
  if #found < size then break end
  least = '(' .. found[size]
end
return answer
`,
)

/** Deletes records that have expired. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 at most so many. Answers how many. */
export const sweepRecordsScript = defineScript(
  'free',
  `
${clock}
${once}
if kept then return kept end
${records}
local expired = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', string.format('%d', now), 'LIMIT', 0, ARGV[5])
for _, record in ipairs(expired) do drop_record(record) end
return keep(#expired)
`,
)
