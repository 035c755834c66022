import { mostWakes } from './claim/due-lanes.ts'
import { claimableRuns } from './parts/claimable-runs.ts'
import { isOver } from './parts/is-over.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { clock, defineScript } from './script.ts'

/**
 * Shortens leases that were granted before the clock was set back to their usual length, and makes suspects due that were due before: see
 * model/clock-set-back.ts. Other due runs are in no index by time, so the clock does not delay them. ARGV: 1 namespace id, 2 clock offset, 3 the lease
 * in ms, 4 the longest lease in ms. Answers { now, 1 if there are more }. May be sent twice.
 */
export const adjustToSetBackScript = defineScript(
  'free',
  `
${clock}
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
local lease_ms, latest = tonumber(ARGV[3]), now + tonumber(ARGV[4])
local left = ${mostWakes}
for _, group in ipairs(call('SMEMBERS', P .. 'groups')) do
  for _, name in ipairs(call('ZRANGE', P .. 'apart:' .. group, 0, -1)) do
    local is_held = string.match(name, '^%d+:(.)') ~= 's'
    local from = is_held and latest or now
    for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'lane:' .. name, '(' .. string.format('%d', from), '+inf', 'LIMIT', 0, left)) do
      local run = string.sub(member, 17)
      local key = P .. 'run:' .. run
      local r = call('HMGET', key, 'due', 'status', 'created', 'started')
      if is_held then
        call('HSET', key, 'until', string.format('%d', now + lease_ms))
        put_in_lane(name, string.sub(member, 1, 16), run, string.format('%d', now + lease_ms))
        left = left - 1
      elseif r[2] == 'pending' and ((r[4] or '') ~= '' or was_due(r[1], r[2], r[3])) then
        call('HSET', key, 'due', string.format('%d', now))
        put_in_lane(name, string.sub(member, 1, 16), run, string.format('%d', now))
        left = left - 1
      end
      if left <= 0 then return { now, 1 } end
    end
  end
end
return { now, 0 }
`,
)
