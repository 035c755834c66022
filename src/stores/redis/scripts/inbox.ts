import { clock, defineScript, lines, once, publish, wakeRun } from './script.ts'

/**
 * Puts a message into a run's inbox. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 run, 7 checksum, 8 entry.
 * Answers run_not_found, conflict, or { thread, 1 where the run was waiting }. The checksum is sealed with the time of arrival.
 */
export const deliverScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${lines}
${wakeRun}
local run = ARGV[6]
local r = call('HMGET', P .. 'run:' .. run, 'status', 'thread')
if not r[1] then return keep('run_not_found') end
if r[1] == 'completed' or r[1] == 'failed' or r[1] == 'cancelled' then return keep('conflict') end
call('HSET', P .. 'inbox:' .. run, call('INCR', P .. 'number'), (ARGV[7] + now) % 4294967296 .. ' ' .. now .. ' ' .. ARGV[8])
call('HINCRBY', P .. 'run:' .. run, 'mail', 1)
local woken = wake_run(run)
${publish}
return keep({ r[2], woken and 1 or 0 })
`,
)

/** A run's messages. ARGV: 1 life, 2 run. Answers id, entry, id, entry, … in no order. */
export const readInboxScript = defineScript('read', `return call('HGETALL', P .. 'inbox:' .. ARGV[2])`)
