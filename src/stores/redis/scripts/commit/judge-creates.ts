/** Judges the runs that a change creates. Needs `threadRuns`. */
export const judgeCreates = `
-- Whether a run that must not wait behind others of its thread would have to. The run that this change ends does not count.
local function is_busy(c, r)
  local created, taken = {}, {}
  local ended_on = r and c.change and is_over[c.change.status] and not is_over[r.status] and r.thread
  for _, n in ipairs(c.creates) do
    if not created[n.run] and call('EXISTS', P .. 'run:' .. n.run) == 0 then
      if n.rejects and (taken[n.thread] or #unfinished_runs_of(n.thread, 1) > (ended_on == n.thread and 1 or 0)) then return true end
      created[n.run] = true
      taken[n.thread] = true
    end
  end
  return false
end

-- Whether a queue has no room for the new runs.
local function is_full(c)
  local added, created = {}, {}
  for _, n in ipairs(c.creates) do
    if not created[n.run] and call('EXISTS', P .. 'run:' .. n.run) == 0 then
      created[n.run] = true
      local queue = queue_of(n.lane)
      added[queue] = (added[queue] or 0) + 1
    end
  end
  for queue, count in pairs(added) do
    local most = call('HGET', P .. 'queue:' .. queue, 'max_queued')
    if most and most ~= '' and (call('HGET', P .. 'counts:' .. queue, 'pending') or 0) + count > tonumber(most) then return true end
  end
  return false
end
`
