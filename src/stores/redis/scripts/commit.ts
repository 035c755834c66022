import { appendEvents } from './commit/append-events.ts'
import { applyChange } from './commit/apply-change.ts'
import { changeFields } from './commit/change-fields.ts'
import { changeRun } from './commit/change-run.ts'
import { createRun } from './commit/create-run.ts'
import { judgeCreates } from './commit/judge-creates.ts'
import { judgeGuard } from './commit/judge-guard.ts'
import { operations } from './commit/operations.ts'
import { plainStart } from './commit/plain-start.ts'
import { plainStep } from './commit/plain-step.ts'
import { recordChanges } from './commit/record-changes.ts'
import { threadRow } from './commit/thread-row.ts'
import { claimableRuns } from './parts/claimable-runs.ts'
import { closeOperations } from './parts/close-operations.ts'
import { foreignOf } from './parts/foreign-positions.ts'
import { gatheredWrites } from './parts/gathered-writes.ts'
import { isOver } from './parts/is-over.ts'
import { labels } from './parts/labels.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { putMessage } from './parts/put-message.ts'
import { queueCounts } from './parts/queue-counts.ts'
import { records } from './parts/records.ts'
import { gatheredRunLists, runLists } from './parts/run-lists.ts'
import { runRow } from './parts/run-row.ts'
import { appendChunks, streamKey } from './parts/streams.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { wakeRun } from './parts/wake-run.ts'
import { clock, defineScript, once, publish, replyOf } from './script.ts'

/**
 * One batch of changes. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 publication, 6 the changes as pack-changes.ts packs them.
 *
 * Answers { now, answer, answer, … } in the order of the changes. A plain step: a number (`plainStep`). A plain start on a new thread: when the
 * run is due. Any other change: { first, last, 1 where there are unseen messages, created } or { refusal, operation }.
 *
 * The server checks memory and disk before the first write of a script only, so a batch that began to write is written completely.
 * In the append-only file it is one MULTI … EXEC; settings.ts makes sure that one torn by a crash is dropped completely.
 *
 * Lua creates a script's functions anew in every call, which takes time, and a plain step needs few of them. So those that only starts need
 * are created by `load_starts`, and those that only other changes need by `load_general`, each when first used.
 */
export const commitScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
local changes = cmsgpack.unpack(ARGV[6])
-- Numbers are passed to commands as text: Redis would format each with 17 digits, which takes longer.
local now_text = string.format('%d', now)
${foreignOf}
${replyOf}
${appendEvents}
${isOver}
${changeFields}
${plainStep}

local start_parts
function load_starts()
  if start_parts then return start_parts end
${laneNames}
${laneIndex}
${gatheredWrites}
${runLists}
${gatheredRunLists}
${plainStart}

local general_parts
function load_general()
  -- Its functions read keys that starts only collect writes for.
  flush()
  if general_parts then return general_parts end
${threadRuns}
${claimableRuns}
${queueCounts}
${wakeRun}
${putMessage}
${closeOperations}
${labels}
${streamKey}
${appendChunks}
${runRow}
${threadRow}
${judgeGuard}
${operations}
${judgeCreates}
${changeRun}
${createRun}
local record_parts
local function load_records()
  if record_parts then return record_parts end
${records}
${recordChanges}
  record_parts = { judge = judge_records, write = write_records }
  return record_parts
end
${applyChange}
  general_parts = { apply_change = apply_change, move_held = move_held }
  return general_parts
end

start_parts = {
  plain_start = plain_start, load_general = load_general, flush = flush, remove_later = remove_later, count_later = count_later, lane_of = lane_of, member_of = member_of,
  queue_of = queue_of, list_later = list_later,
}
return start_parts
end

local answer = { now }
local is_done, problem = pcall(function()
  for i, c in ipairs(changes) do
    if c[1] == 1 then
      answer[i + 1] = plain_step(c)
    elseif c[1] == 2 then
      answer[i + 1] = load_starts().plain_start(c)
    else
      answer[i + 1] = load_starts().load_general().apply_change(c)
    end
  end
end)
-- A damaged key ends the batch; the changes before it are written completely.
if start_parts then start_parts.flush() end
if not is_done then return reply_of(problem) end
${publish}
return keep(answer)
`,
)
