-- Spike for decision 0001: claiming on plain Redis 7, one EVALSHA. Keys: redis-commit.lua.
--
--   KEYS[1]  namespace with its hash tag
--   ARGV     1 clock offset  2 worker  3 lease ms  4 limit  5 seed for lease ids (random, from the client)
--            6 JSON array of [workflow, version, highest state version or null]      7 JSON array of queues, or ''
--
-- Answer: { now, { run row as HGETALL, thread row as HGETALL, input entry, holder it was taken from or '', end of that lease }, … }
--
-- A lane's zset holds only heads of lines, by the time from which they may be taken: a due time, or the end of a lease. So due and
-- abandoned runs are found by the same read, sleeping ones and those behind others are never touched.

local P = KEYS[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
local worker, lease_ms, limit, seed = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local can, queues = {}, nil
for _, w in ipairs(cjson.decode(ARGV[6])) do can[w[2] .. '\t' .. w[1]] = w[3] == cjson.null and math.huge or w[3] or math.huge end
if ARGV[7] ~= '' then queues = {}; for _, q in ipairs(cjson.decode(ARGV[7])) do queues[q] = true end end

-- Lanes this worker can execute. (With very many lanes: let the client cache them and pass the names.)
local found = {}
for _, lane in ipairs(call('SMEMBERS', P .. 'lanes')) do
  local priority, what, queue = lane:match('^(%-?%d+)\t(%d+\t[^\t]*)\t(.*)$')
  local state_version = can[what]
  if state_version and (not queues or queues[queue]) then
    local taken, from = 0, 0
    repeat                                                     -- pages, because a thread's state may be newer than this worker
      local page = call('ZRANGEBYSCORE', P .. 'z' .. lane, '-inf', now, 'WITHSCORES', 'LIMIT', from, limit)
      for i = 1, #page, 2 do
        local thread = state_version < math.huge and call('HGET', P .. 'r' .. page[i], 'thread')
        if not thread or tonumber(call('HGET', P .. 't' .. thread, 'stateVersion')) <= state_version then
          found[#found + 1] = { run = page[i], at = tonumber(page[i + 1]), priority = tonumber(priority), lane = lane }
          taken = taken + 1
        end
      end
      from = from + limit
    until #page < 2 * limit or taken >= limit or from > 10 * limit
  end
end
table.sort(found, function(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  if a.at ~= b.at then return a.at < b.at end
  return a.run < b.run
end)

local answer = { now }
for i = 1, math.min(limit, #found) do
  local f = found[i]
  local rk = P .. 'r' .. f.run
  local r = call('HMGET', rk, 'status', 'leaseHolder', 'thread', 'inputSeq', 'leaseUntil', 'line', 'waitKey', 'owner')
  local tk = P .. 't' .. r[3]
  call('HINCRBY', rk, 'epoch', 1)
  call('HINCRBY', rk, 'claims', 1)
  call('HSET', rk, 'status', 'running', 'leaseId', seed .. i, 'leaseHolder', worker, 'leaseUntil', now + lease_ms)
  call('HDEL', rk, 'reason', 'waitKey')
  if r[7] then call('SREM', P .. 'w' .. #r[8] .. ':' .. r[8] .. r[7], f.run) end
  call('ZADD', P .. 'z' .. f.lane, now + lease_ms, f.run)
  local started = tonumber(call('HGET', tk, 'lastStarted') or 0)     -- what `undisturbed` asks for
  if tonumber(r[6]) > started then call('HSET', tk, 'lastStarted', r[6]) end
  local was_running = r[1] == 'running'
  answer[i + 1] = { call('HGETALL', rk), call('HGETALL', tk), call('LINDEX', P .. 'l' .. r[3], tonumber(r[4]) - tonumber(call('HGET', tk, 'base')) - 1),
    was_running and r[2] or '', was_running and r[5] or '' }
end
return answer
