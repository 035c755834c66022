/** Makes a waiting run due now, unless it is due already: then it keeps its place. Needs `clock` and `claimableRuns`. */
export const wakeRun = `
-- Returns whether the run is waiting.
local function wake_run(run)
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'status', 'due', 'thread')
  if r[1] ~= 'waiting' then return false end
  if r[2] == '' or tonumber(r[2]) > now then
    call('HSET', key, 'due', now)
    make_claimable_if_next(run, r[3])
  end
  return true
end
`
