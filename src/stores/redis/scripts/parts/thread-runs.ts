/**
 * The runs of a thread, and its queue: the unfinished ones among them, of which only the first can be claimed. The only run of a thread is
 * named in the field `run` of the thread's row. From the second run on, all are in `runs:`, and the unfinished ones in `line:`
 * (docs/decisions/0018). Other parts know no more of this than the value of that field, `only`. Needs `isOver`.
 */
export const threadRuns = `
-- At most so many runs of the incarnation with greater numbers, in order. -1 for all.
local function runs_after(thread, number, most)
  local only = call('HGET', P .. 'thread:' .. thread, 'run')
  if only and only ~= '' then return number == '0' and { only } or {} end
  return call('ZRANGEBYSCORE', P .. 'runs:' .. thread, '(' .. number, '+inf', 'LIMIT', 0, most)
end

-- The unfinished runs, in order, up to this index counted from 0. -1 for all.
local function unfinished_runs_of(thread, last)
  local only = call('HGET', P .. 'thread:' .. thread, 'run')
  if not only or only == '' then return call('ZRANGE', P .. 'line:' .. thread, 0, last) end
  return is_over[call('HGET', P .. 'run:' .. only, 'status')] and {} or { only }
end

local function next_run_of(thread)
  return unfinished_runs_of(thread, 0)[1]
end

-- Whether an unfinished run is the next of its thread.
local function is_next_run(thread, only, run)
  return only == run or call('ZRANGE', P .. 'line:' .. thread, 0, 0)[1] == run
end

-- A new run joins its thread, behind all others. Returns whether it is the next.
local function join_thread(thread, t, number, run)
  local key, runs, line = P .. 'thread:' .. thread, P .. 'runs:' .. thread, P .. 'line:' .. thread
  if t.is_empty or (t.run == '' and call('EXISTS', runs) == 0) then
    call('HSET', key, 'run', run)
    return true
  end
  if t.run ~= '' then
    local first = call('HMGET', P .. 'run:' .. t.run, 'number', 'status')
    call('ZADD', runs, first[1], t.run)
    if not is_over[first[2]] then call('ZADD', line, first[1], t.run) end
    call('HSET', key, 'run', '')
  end
  local is_next = call('EXISTS', line) == 0
  call('ZADD', runs, number, run)
  call('ZADD', line, number, run)
  return is_next
end

-- A run has finished. Returns the run that became the next, if any.
local function leave_queue(thread, only, run)
  if only == run then return end
  call('ZREM', P .. 'line:' .. thread, run)
  return call('ZRANGE', P .. 'line:' .. thread, 0, 0)[1]
end

-- A finished run continues and gets its old place back. Returns whether it is the next, and the run that was until now, if any.
local function rejoin_queue(thread, only, number, run)
  if only == run then return true end
  call('ZADD', P .. 'line:' .. thread, number, run)
  local first = call('ZRANGE', P .. 'line:' .. thread, 0, 1)
  return first[1] == run, first[2]
end
`
