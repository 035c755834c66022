/**
 * Puts a message into a run's inbox and wakes the run. A run's `mail` is the id of its latest unread message, 0 for none. The checksum is
 * sealed with the time of arrival. Needs `clock`, `isOver`, `claimableRuns` and `wakeRun`.
 */
export const putMessage = `
-- Returns the refusal, or { thread, 1 if the run is waiting }. A message whose id was delivered before changes nothing.
local function put_message(run, checksum, entry, id)
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'thread')
  if not r[1] then return 'run_not_found' end
  if id and call('SISMEMBER', P .. 'delivered:' .. run, id) == 1 then return { r[2], 0 } end
  if is_over[r[1]] then return 'conflict' end
  if id then call('SADD', P .. 'delivered:' .. run, id) end
  local number = call('INCR', P .. 'number')
  call('HSET', P .. 'inbox:' .. run, number, (checksum + now) % 4294967296 .. ' ' .. now .. ' ' .. entry)
  call('HSET', P .. 'run:' .. run, 'mail', number)
  return { r[2], wake_run(run) and 1 or 0 }
end
`
