import { claimableRuns } from './parts/claimable-runs.ts'
import { isOver } from './parts/is-over.ts'
import { laneIndex } from './parts/lane-index.ts'
import { laneNames } from './parts/lane-names.ts'
import { putMessage } from './parts/put-message.ts'
import { threadRuns } from './parts/thread-runs.ts'
import { wakeRun } from './parts/wake-run.ts'
import { clock, defineScript, once, publish } from './script.ts'

/**
 * Puts a message into a run's inbox. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 publication, 6 run, 7 checksum, 8 entry,
 * 9 an id, if the message is to be delivered once.
 * Answers run_not_found, conflict, or { thread, 1 if the run is waiting }.
 */
export const deliverScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${isOver}
${laneNames}
${laneIndex}
${threadRuns}
${claimableRuns}
${wakeRun}
${putMessage}
local answer = put_message(ARGV[6], ARGV[7], ARGV[8], ARGV[9])
if type(answer) == 'string' then return keep(answer) end
${publish}
return keep(answer)
`,
)

/** A run's messages. ARGV: 1 namespace id, 2 run. Answers id, entry, id, entry, … in no particular order. */
export const readInboxScript = defineScript('read', `return call('HGETALL', P .. 'inbox:' .. ARGV[2])`)
