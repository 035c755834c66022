/**
 * Records. One is named `<bytes of collection>:<collection><key>`, where a collection has its owner in front (`pairOf`). `indexes` of its row
 * names the indexes that its key is in, one per line, besides that of its collection. Times are given as `at`: a script may have another `now`.
 */
export const records = `
local function split_record(record)
  local colon = string.find(record, ':', 1, true)
  local last = colon + string.sub(record, 1, colon - 1)
  return string.sub(record, colon + 1, last), string.sub(record, last + 1)
end

local function in_each_index(command, indexes, ...)
  for index in string.gmatch(indexes, '[^\\n]+') do call(command, P .. 'index:' .. index, ...) end
end

-- 0 where there is none, or it has expired.
local function live_version(record, at)
  local r = call('HMGET', P .. 'record:' .. record, 'version', 'expires')
  if not r[1] or r[2] ~= '' and (tonumber(r[2]) or math.huge) <= at then return 0 end
  return tonumber(r[1]) or 1
end

local function drop_record(record)
  local row = P .. 'record:' .. record
  local r = call('HMGET', row, 'indexes', 'thread', 'expires')
  if not r[1] then return end
  local collection, key = split_record(record)
  in_each_index('ZREM', r[1], key)
  call('ZREM', P .. 'records:' .. collection, key)
  if call('EXISTS', P .. 'records:' .. collection) == 0 then call('ZREM', P .. 'collections', collection) end
  if r[2] ~= '' then call('ZREM', P .. 'thread-records:' .. r[2], record) end
  if r[3] ~= '' then call('ZREM', P .. 'expiring', record) end
  call('UNLINK', row)
end

local function set_expiry(record, expires)
  if expires then call('ZADD', P .. 'expiring', string.format('%d', expires), record) else call('ZREM', P .. 'expiring', record) end
end

-- \`w\` has what its writer knows of it; version and times are numbers, expires nil for never.
local function put_record(record, w, version, created, updated, expires)
  local row = P .. 'record:' .. record
  local before = call('HMGET', row, 'indexes', 'thread', 'expires')
  local collection, key = split_record(record)
  if not before[1] then
    call('ZADD', P .. 'records:' .. collection, 0, key)
    call('ZADD', P .. 'collections', 0, collection)
  end
  if before[1] ~= w.indexes then
    if before[1] then in_each_index('ZREM', before[1], key) end
    in_each_index('ZADD', w.indexes, 0, key)
  end
  if (before[2] or '') ~= w.thread then
    if (before[2] or '') ~= '' then call('ZREM', P .. 'thread-records:' .. before[2], record) end
    if w.thread ~= '' then call('ZADD', P .. 'thread-records:' .. w.thread, 0, record) end
  end
  if expires or (before[3] or '') ~= '' then set_expiry(record, expires) end
  local sum = (w.sum + version * 65537 + created + updated * 3 + (expires or 0) % 4294967296) % 4294967296
  call('HSET', row, 'version', string.format('%d', version), 'expires', expires and string.format('%d', expires) or '', 'indexes', w.indexes,
    'thread', w.thread, 'parent', w.parent, 'fields', w.fields, 'created', string.format('%d', created), 'updated', string.format('%d', updated),
    'sum', string.format('%d', sum), 'payload', w.payload)
end
`
