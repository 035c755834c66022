import { clock, defineScript, laneIndex, lines, once, places, publish, putMessage, wakeRun } from './script.ts'

/**
 * Puts a message into a run's inbox. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 run, 7 checksum, 8 entry,
 * 9 the id of a message that is delivered once, if it is one.
 * Answers run_not_found, conflict, or { thread, 1 where the run was waiting }.
 */
export const deliverScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${places}
${laneIndex}
${lines}
${wakeRun}
${putMessage}
local answer = put_message(ARGV[6], ARGV[7], ARGV[8], ARGV[9])
if type(answer) == 'string' then return keep(answer) end
${publish}
return keep(answer)
`,
)

/** A run's messages. ARGV: 1 life, 2 run. Answers id, entry, id, entry, … in no order. */
export const readInboxScript = defineScript('read', `return call('HGETALL', P .. 'inbox:' .. ARGV[2])`)
