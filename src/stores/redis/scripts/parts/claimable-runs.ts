/** Puts runs into lanes, where claims find them. Only the next run of a thread is in a lane. Needs `now`, `laneNames`, `laneIndex` and `threadRuns`. */
export const claimableRuns = `
index_lanes()
local function add_ready(name, owner, number, run, at)
  call('ZADD', ready_key(name, owner), at, member_of(number, run))
  note_due(name, owner, at)
end

local function remove_ready(name, owner, member)
  call('ZREM', ready_key(name, owner), member)
  note_left(name, owner)
end

-- A run that is due is not in the lane that its status names but in one of its owner's; \`ready\` says in which.
local function take_out_of_lane(name, number, run)
  local member = member_of(number, run)
  if call('ZREM', P .. 'lane:' .. name, member) == 1 then return end
  local ready = call('HGET', P .. 'run:' .. run, 'ready')
  if not ready or ready == '' then return end
  local version, lane = string.match(name, '^(%d+):.:(.*)$')
  remove_ready(version .. ':' .. ready .. ':' .. lane, owner_of(run), member)
  call('HSET', P .. 'run:' .. run, 'ready', '')
end

-- \`at\` is the time from which the run can be claimed, or empty for never.
local function put_in_lane(name, number, run, at)
  if at == '' then return take_out_of_lane(name, number, run) end
  local version, kind, lane = string.match(name, '^(%d+):(.):(.*)$')
  if kind == '-' then
    take_out_of_lane(name, number, run)
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'thread', 'status', 'created')
    if tonumber(at) <= now or was_due(at, r[3], r[4]) then
      -- An epoch above the thread's floor means that the run was claimed before.
      local ready = r[1] == (call('HGET', P .. 'thread:' .. r[2], 'floor') or '0') and 'n' or 'b'
      call('HSET', P .. 'run:' .. run, 'ready', ready)
      return add_ready(version .. ':' .. ready .. ':' .. lane, owner_of(run), number, run, at)
    end
  end
  call('ZADD', P .. 'lane:' .. name, at, member_of(number, run))
  note_time(name, at)
end

-- Puts the next run of a thread where claims find it, from the time at which it can be claimed; takes it away if it cannot be.
local function make_claimable(run, version)
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'due', 'until', 'claims', 'lane', 'number')
  local at = ''
  if r[1] == 'running' then at = r[3] elseif r[1] == 'pending' or r[1] == 'waiting' then at = r[2] end
  put_in_lane(lane_of(version, r[5], r[4], r[1]), r[6], run, at)
end

-- To be called after the time of an unfinished run has changed.
local function make_claimable_if_next(run, thread)
  local t = call('HMGET', P .. 'thread:' .. thread, 'version', 'run')
  if is_next_run(thread, t[2], run) then make_claimable(run, t[1] or '0') end
end

-- Takes the next run of a thread away from claims.
local function make_unclaimable(run, version)
  local r = call('HMGET', P .. 'run:' .. run, 'lane', 'claims', 'status', 'number')
  take_out_of_lane(lane_of(version, r[1], r[2], r[3]), r[4], run)
end
`
