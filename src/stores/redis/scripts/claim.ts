import { runFields } from '../rows.ts'
import { askedLanes } from './claim/asked-lanes.ts'
import { describeRun } from './claim/describe-run.ts'
import { dueLanes, takeApart, wakeRuns } from './claim/due-lanes.ts'
import { findLines } from './claim/find-lines.ts'
import { queueRoom } from './claim/queue-room.ts'
import { takeInTurn } from './claim/take-in-turn.ts'
import { takeRun } from './claim/take-run.ts'
import { claimableRuns } from './parts/claimable-runs.ts'
import { gatheredWrites } from './parts/gathered-writes.ts'
import { isOver } from './parts/is-over.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { gatheredRunLists, runLists } from './parts/run-lists.ts'
import { runRow } from './parts/run-row.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { at, clock, defineScript, once, replyOf } from './script.ts'

/**
 * Claims runs, in the order of model/claim-order.ts. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 worker, 6 lease ms, 7 limit, 8 a
 * random word for lease ids, 9 { { { workflow, version, highest state version or false } … }, queues or false, how many suspects or false,
 * { { queue, limit } … }, { { priority, last owner } … } }, 10 a time before which the store's clock cannot be unless it was set back.
 *
 * Answers { now, { run, its row and its thread's in one, length of the log, input entry, holder it was taken from, end of that lease, 1 if its
 * queue has a limit }, … }, or { now, 0 } if the clock was set back; then nothing was done.
 *
 * A lane holds only runs that are the next of their thread, so runs behind others are never looked at. The index of lanes (`laneIndex`) leads
 * to lanes with something to claim, so the cost of a claim depends on what it claims and not on the number of queues.
 */
export const claimScript = defineScript(
  'write',
  `
${clock}
${once}
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
${gatheredWrites}
${runLists}
${gatheredRunLists}
${replyOf}
${runRow}
local worker, lease_ms, limit, word = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
${queueRoom}
${describeRun}

if kept then
  -- A claim that is sent again. Some of its runs may have been released or taken over since: only those still under its leases are answered.
  local answer = { kept[1] }
  for i = 2, #kept do
    local row = row_of(kept[i][1])
    if row[${at(runFields, 'lease')}] == kept[i][2] then answer[#answer + 1] = describe(kept[i][1], row, kept[i][3], kept[i][4]) end
  end
  return answer
end

if now < tonumber(ARGV[10]) then return { now, 0 } end
${askedLanes}
${takeRun}
${dueLanes}
${wakeRuns}
${takeApart}
${findLines}
${takeInTurn}

local is_done, problem = pcall(function()
  for _, priority in ipairs(priorities) do
    local groups = by_priority[priority]
    wake(groups)
    take_apart(groups)
    if is_enough() then break end
    take_in_turn(groups, last_owners[priority])
    if is_enough() then break end
    for _, group in ipairs(groups) do
      local name = group.name
      if call('EXISTS', P .. 'sleeping:' .. name, P .. 'apart:' .. name, P .. 'limited:' .. name, P .. 'owners:b:' .. name, P .. 'owners:n:' .. name) == 0 then
        call('SREM', P .. 'groups', name)
      end
    end
  end
end)
-- A damaged key ends the claim. The runs taken before it are not executed by any worker until their leases end.
write_taken()
if not is_done then return reply_of(problem) end
if #claims == 1 then return { now } end
for queue, count in pairs(starts) do
  local key = P .. 'starts:' .. queue
  for _, at in ipairs(call('HKEYS', key)) do
    if tonumber(at) <= rooms[queue].since then call('HDEL', key, at) end
  end
  call('HINCRBY', key, string.format('%.0f', now), count)
end
keep(claims)
return answer
`,
)
