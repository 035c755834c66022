import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { clock, defineScript, once, publish } from './script.ts'

const queueFields = ['concurrency', 'rate_count', 'rate_per_ms', 'max_queued', 'is_paused']

/**
 * Changes settings of a queue. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 publication, 6 queue, then field, value, …; empty for no
 * limit, `1` or `0` for is_paused. A queue that has only defaults left is removed.
 */
export const setQueueScript = defineScript(
  'write',
  `
${once}
if kept then return kept end
${laneNames}
${laneIndex}
index_lanes()
local name = ARGV[6]
local key = P .. 'queue:' .. name
if call('SADD', P .. 'queues', name) == 1 then
  call('HSET', key, 'concurrency', '', 'rate_count', '', 'rate_per_ms', '', 'max_queued', '', 'is_paused', '0')
end
for i = 7, #ARGV, 2 do
  call('HSET', key, ARGV[i], ARGV[i + 1])
  if ARGV[i] == 'rate_count' then call('DEL', P .. 'starts:' .. name) end
end
local q = call('HMGET', key, 'concurrency', 'rate_count', 'max_queued', 'is_paused')
if q[1] == '' and q[2] == '' and q[3] == '' and q[4] == '0' then
  call('DEL', key)
  call('SREM', P .. 'queues', name)
end
unpark(name)
${publish}
return keep(1)
`,
)

/**
 * Queues with settings or unfinished runs. ARGV: 1 namespace id, 2 clock offset, 3 `1` for one only, 4 its name. Answers
 * { { name, settings or nothing, pending and due, pending, running, waiting, paused } … } in no particular order.
 */
export const listQueuesScript = defineScript(
  'read',
  `
${clock}
local names = {}
if ARGV[3] == '1' then
  if call('HEXISTS', P .. 'in-queues', ARGV[4]) == 1 or call('SISMEMBER', P .. 'queues', ARGV[4]) == 1 then names[ARGV[4]] = true end
else
  for _, name in ipairs(call('HKEYS', P .. 'in-queues')) do names[name] = true end
  for _, name in ipairs(call('SMEMBERS', P .. 'queues')) do names[name] = true end
end
local answer = {}
for name in pairs(names) do
  local settings = call('HMGET', P .. 'queue:' .. name, ${queueFields.map((field) => `'${field}'`).join(', ')})
  local counts = call('HMGET', P .. 'counts:' .. name, 'pending', 'running', 'waiting', 'paused')
  local pending = tonumber(counts[1] or 0)
  answer[#answer + 1] = { name, settings[5] and settings or {}, pending - call('ZCOUNT', P .. 'delayed:' .. name, '(' .. string.format('%d', now), '+inf'), pending,
    tonumber(counts[2] or 0), tonumber(counts[3] or 0), tonumber(counts[4] or 0) }
end
return answer
`,
)
