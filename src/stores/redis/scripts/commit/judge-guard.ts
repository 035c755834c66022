/** Judges the guard of a change. Needs `threadRow` and `threadRuns`. */
export const judgeGuard = `
local function has_holder(thread)
  for _, run in ipairs(unfinished_runs_of(thread, -1)) do
    if call('HGET', P .. 'run:' .. run, 'status') == 'running' then return true end
  end
  return false
end

-- A later run that was claimed but has written nothing yet counts too: it would execute in parallel with the earlier one.
local function has_later_start(thread, number)
  for _, run in ipairs(runs_after(thread, number, -1)) do
    local r = call('HMGET', P .. 'run:' .. run, 'status', 'started')
    if r[1] == 'running' or (r[2] or '') ~= '' then return true end
  end
  return false
end

-- Returns the refusal, or nil where the guard holds.
local function judge_guard(c, t, r)
  local guard, mine = c.guard, r and r.thread == c.thread
  if guard == 'lease' then
    if not mine or c.lease == '' or r.epoch ~= c.epoch or r.lease ~= c.lease then return 'lease_lost' end
    if c.written then
      -- The server has lost records that this writer knows, and with them maybe another claim.
      local head = head_of(c.thread, t)
      if head - foreign_of(t.foreign, t.base, head) < c.written then return 'lease_lost' end
    end
    if c.head and head_of(c.thread, t) ~= c.head then return 'conflict' end
  elseif guard == 'run' then
    if not mine then return 'run_not_found' end
    if r.epoch ~= c.epoch or r.status ~= c.status then return 'conflict' end
    if c.head and head_of(c.thread, t) ~= c.head then return 'conflict' end
    if c.undisturbed and has_later_start(c.thread, r.number) then return 'conflict' end
  elseif guard == 'thread' then
    if not t then return c.head ~= 0 and 'conflict' or nil end
    if t.is_deleted then return 'thread_deleted' end
    if head_of(c.thread, t) ~= c.head or has_holder(c.thread) then return 'conflict' end
  elseif #c.events > 0 or c.change then
    -- Even without a guard a late writer must not bring a deleted thread back, nor write for a run that no longer exists.
    if t and t.is_deleted then return 'thread_deleted' end
    if c.run and not mine then return 'run_not_found' end
  end
end
`
