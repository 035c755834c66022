/** What a change does to the row of its run, as far as that follows from the row itself. Needs `isOver`. */
export const changeFields = `
-- When a lease should end that has less than two thirds, or more than all, of the asked time left. Nil: leave it as it is.
local function extended_lease(until_, lease_ms)
  local left = tonumber(until_) - now
  if left < lease_ms * 2 / 3 or left > lease_ms then return now + lease_ms end
end

-- Notes a field to be written.
local function put(set, field, value)
  local length = #set
  set[length + 1], set[length + 2] = field, value
end

-- Returns the list of fields and values to be written. Of \`r\` it changes what decides about lanes: status, until, claims and due.
-- \`first\` and \`last\` are the positions of the change's events.
local function change_fields(r, to, first, last, is_leased)
  local set = {}
  if to.status then
    r.status = to.status
    put(set, 'status', r.status)
    put(set, 'finished', is_over[r.status] and now_text or '')
  end
  if r.status ~= 'running' then
    if r.lease ~= '' then put(set, 'lease', '') end
  elseif is_leased and to.lease_ms then
    local until_ = extended_lease(r['until'], to.lease_ms)
    if until_ then
      r['until'] = string.format('%d', until_)
      put(set, 'until', r['until'])
    end
  end
  if to.reason and to.reason ~= r.reason then put(set, 'reason', to.reason) end
  if to.step and to.step ~= r.step then put(set, 'step', to.step) end
  if (to.progress or to.uncount) and r.claims ~= '0' then
    r.claims = to.progress and '0' or string.format('%d', r.claims - 1)
    put(set, 'claims', r.claims)
  end
  if to.tape then
    put(set, 'tape', first)
    if r.started == '' then put(set, 'started', now_text) end
    if to.input then put(set, 'input', first) end
  end
  if to.ends then put(set, 'end', last) end
  if to.due_ms or to.due then
    r.due = to.due_ms and now + to.due_ms or to.due
    put(set, 'due', r.due)
  end
  return set
end
`
