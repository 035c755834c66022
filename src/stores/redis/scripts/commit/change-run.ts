/** Changes a run's row, and the indexes that the run is in. Needs `changeFields`, `operations`, `claimableRuns`, `queueCounts` and `runLists`. */
export const changeRun = `
-- To be called after the lease or the number of claims of a run under a lease has changed: both decide its lane and its place there.
local function move_held(run, thread, claims_before)
  local t = call('HMGET', P .. 'thread:' .. thread, 'version', 'run')
  if not is_next_run(thread, t[2], run) then return end
  local version = t[1] or '0'
  local r = call('HMGET', P .. 'run:' .. run, 'lane', 'claims', 'number')
  local before = lane_of(version, r[1], claims_before, 'running')
  if before ~= lane_of(version, r[1], r[2], 'running') then take_out_of_lane(before, r[3], run) end
  make_claimable(run, version)
end

local function read_run(run)
  local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'due', 'wait',
    'intends', 'started', 'lane', 'number', 'created', 'owner', 'reason')
  if not r[1] then return end
  return {
    epoch = r[1], lease = r[2] or '', thread = r[3], base = tonumber(r[4] or 0), mail = r[5] or '0', claims = r[6] or '0', step = r[7] or '',
    ['until'] = r[8] or '', status = r[9], due = r[10], wait = r[11] or '', intends = r[12] or '', started = r[13] or '', lane = r[14],
    number = r[15], created = r[16], owner = r[17] or '', reason = r[18] or '',
  }
end

-- Whether there are unread messages that the writer has not seen.
local function has_unseen_mail(c, r)
  return tonumber(r.mail) > (c.seen or 0)
end

-- To be called after the status, time or number of claims of a run has changed. \`was\` and \`claims_before\` are what they were: they
-- name the lane that the run is still in.
local function move_lane(c, t, r, was, claims_before)
  local run, version = c.run, t.version
  if is_over[r.status] then
    if is_over[was] then return end
    take_out_of_lane(lane_of(version, r.lane, claims_before, was), r.number, run)
    local next_run = leave_queue(c.thread, t.run, run)
    if next_run then make_claimable(next_run, version) end
    return
  end
  if is_over[was] then
    local is_next, next_until_now = rejoin_queue(c.thread, t.run, r.number, run)
    if not is_next then return end
    if next_until_now then make_unclaimable(next_until_now, version) end
  elseif not is_next_run(c.thread, t.run, run) then
    return
  elseif lane_of(version, r.lane, claims_before, was) ~= lane_of(version, r.lane, r.claims, r.status) then
    take_out_of_lane(lane_of(version, r.lane, claims_before, was), r.number, run)
  end
  local at = ''
  if r.status == 'running' then at = r['until'] elseif r.status ~= 'paused' then at = r.due end
  put_in_lane(lane_of(version, r.lane, r.claims, r.status), r.number, run, at)
end

local function change_run(c, t, r, first, last)
  local run, to = c.run, c.change
  local was, claims_before, until_before = r.status, r.claims, r['until']
  local set = change_fields(r, to, first, last, c.guard == 'lease')
  local is_moved = to.status or to.due_ms or to.due or r.claims ~= claims_before or r['until'] ~= until_before
  local function wait_for(operation)
    if r.wait ~= '' then call('SREM', P .. 'waiting:' .. r.wait, run) end
    if operation ~= '' then call('SADD', P .. 'waiting:' .. operation, run) end
    r.wait = operation
    put(set, 'wait', operation)
  end
  local function be_due_now()
    r.due, is_moved = now, true
    put(set, 'due', now)
  end
  if to.status and to.status ~= 'waiting' and r.wait ~= '' then wait_for('') end
  if to.wait then
    wait_for(to.wait)
    -- The operation may have been closed before the run began to wait for it.
    if not is_open(to.wait) then be_due_now() end
  end
  -- A message that arrived while the run was on its way to waiting must not be slept through.
  if to.status == 'waiting' and has_unseen_mail(c, r) and (r.due == '' or tonumber(r.due) > now) then be_due_now() end
  if #set > 0 then call('HSET', P .. 'run:' .. run, unpack(set)) end
  if (is_over[r.status] or to.tape and to.input) and r.intends ~= '' then close_open_operations(run, now_text) end
  if is_moved then move_lane(c, t, r, was, claims_before) end
  if to.status or (is_moved and r.status == 'pending') then count_run(r.lane, run, was, r.status, r.due, r.created) end
  if to.status then list_run(r.owner, r.lane, r.number, run, r.created, was, r.status) end
end
`
