/** Counts the unfinished runs of each queue, by status. Needs `isOver`, `laneNames` and `laneIndex`. */
export const queueCounts = `
-- A run changes from one status to another. \`from\` is nil for a new run, \`to\` is nil for a deleted one.
local function count_run(lane, run, from, to, due, created)
  local queue = queue_of(lane)
  local was, is = from and not is_over[from], to and not is_over[to]
  if to == 'pending' and is_delayed(due, created) then
    call('ZADD', P .. 'delayed:' .. queue, due == '' and '+inf' or due, run)
  elseif from == 'pending' then
    call('ZREM', P .. 'delayed:' .. queue, run)
  end
  if from == to then return end
  if was then call('HINCRBY', P .. 'counts:' .. queue, from, -1) end
  if is then call('HINCRBY', P .. 'counts:' .. queue, to, 1) end
  count_in_queue(queue, (is and 1 or 0) - (was and 1 or 0))
  if from == 'running' then unpark(queue) end
end
`
