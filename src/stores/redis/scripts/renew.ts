import { claimableRuns } from './parts/claimable-runs.ts'
import { foreignOf } from './parts/foreign-positions.ts'
import { isOver } from './parts/is-over.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { clock, defineScript } from './script.ts'

/**
 * Extends leases. ARGV: 1 namespace id, 2 clock offset, 3 lease ms, 4 { { run, epoch, lease, last position under a lease that is known } … }. Answers for each: 0 not held, 1 held,
 * 2 held, with unread messages. May be sent twice.
 */
export const renewScript = defineScript(
  'free',
  `
${clock}
${foreignOf}
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
local until_ = now + tonumber(ARGV[3])
local answer = {}
for i, asked in ipairs(cmsgpack.unpack(ARGV[4])) do
  local run = asked[1]
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'epoch', 'lease', 'mail', 'thread', 'base')
  local is_held = r[1] == asked[2] and r[2] == asked[3] and r[2] ~= ''
  if is_held and asked[4] > 0 then
    local base = tonumber(r[5] or 0)
    local head = base + call('LLEN', P .. 'log:' .. r[4])
    is_held = head - foreign_of(call('HGET', P .. 'thread:' .. r[4], 'foreign'), base, head) >= asked[4]
  end
  if not is_held then
    answer[i] = 0
  else
    call('HSET', key, 'until', until_)
    make_claimable_if_next(run, r[4])
    answer[i] = (r[3] or '0') == '0' and 1 or 2
  end
end
return answer
`,
)
