/**
 * A step, or the end of a run, as nearly every change is: in as few commands as possible. What it cannot do goes to `apply_change`. Needs
 * `appendEvents`, `changeFields` and `foreignOf`.
 */
export const plainStep = `
local function copy_from(from, list)
  local copy = {}
  for i = from, #list do copy[#copy + 1] = list[i] end
  return copy
end

local load_starts

-- The change and the run in the form that \`change_fields\` reads. They are reused for every plain step of the batch: new tables
-- for each made the script 8 % slower.
local to = { status = false, reason = false, step = false, progress = false, uncount = false, lease_ms = false, tape = false, ends = false }
local row = { status = false, lease = false, claims = false, step = false, ['until'] = false, reason = false, started = false }

-- A change with a lease guard and events that changes no more of the run than its step, claims, lease, start of its tape, and end:
--
--   1: 1   2: run   3: thread   4: epoch   5: lease   6: step or false   7: 1 progress, 2 uncount, 0 neither   8: lease ms or false
--   9: whether it starts the tape   10: latest message seen   11: status at the end or false   12: last position that the writer knows to
--   be written under a lease, or false   13: number of its last event with a patch, or 0   14…: checksum, entry, checksum, entry, …
--
-- Returns 0 for lease_lost, else twice its first position, plus 1 where there are unseen messages.
local function plain_step(c)
  local run, thread, ends = c[2], c[3], c[11]
  local key = P .. 'run:' .. run
  local r
  if ends then
    r = call('HMGET', key, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'number', 'lane', 'wait', 'intends', 'reason', 'started',
      'created', 'owner')
  else
    r = call('HMGET', key, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until')
  end
  if r[1] ~= c[4] or r[2] ~= c[5] or r[3] ~= thread or c[5] == '' then return 0 end
  local thread_key = P .. 'thread:' .. thread
  to.status, to.reason, to.step, to.progress, to.uncount = ends, ends and '', c[6], c[7] == 1, c[7] == 2
  to.lease_ms, to.tape, to.ends = c[8], c[9], ends
  local t = ends and call('HMGET', thread_key, 'version', 'run', 'foreign')
  if ends and (t[2] ~= run or r[9] ~= 'running' or (r[12] or '') ~= '' or (r[13] or '') ~= '') then
    -- Other runs of the thread wait, or the run waits for or has opened an operation.
    return load_starts().load_general().apply_change({
      thread = thread, run = run, guard = 'lease', epoch = c[4], lease = c[5], seen = c[10], written = c[12], patched = c[13], events = copy_from(14, c),
      change = to,
    })
  end
  local log = P .. 'log:' .. thread
  local head = (r[4] or 0) + call('LLEN', log)
  local foreign
  if ends then foreign = t[3] else foreign = call('HGET', thread_key, 'foreign') end
  -- The server has lost records that this writer knows, and with them maybe another claim.
  if c[12] and head - foreign_of(foreign, tonumber(r[4] or 0), head) < c[12] then return 0 end
  append(log, head, c, 14)
  local first = #c < 14 and head or head + 1
  if c[13] ~= 0 then call('HSET', thread_key, 'patch', position_text(head, c[13]), 'checksum', sealed_text(c, 14, head, c[13])) end
  if foreign and foreign ~= '0' and #c >= 14 then call('HSET', thread_key, 'foreign', '0') end
  row.status, row.lease, row.claims, row.step, row['until'], row.reason = 'running', r[2], r[6] or '0', r[7] or '', r[8], ends and r[14] or ''
  if c[9] then row.started = (ends and r[15] or not ends and call('HGET', key, 'started')) or '' end
  local set = change_fields(row, to, first, head + (#c - 13) / 2, true)
  if #set > 0 then call('HSET', key, unpack(set)) end
  if ends then
    local starts = load_starts()
    local member = starts.member_of(r[10], run)
    starts.remove_later(P .. 'lane:' .. starts.lane_of(t[1] or '0', r[11], r[6], 'running'), member)
    starts.count_later(starts.queue_of(r[11]), 'running', -1)
    starts.list_later(r[17] or '', r[11], member, r[16], 'running', ends)
  elseif row['until'] ~= r[8] or row.claims ~= (r[6] or '0') and r[6] ~= '1' then
    load_starts().load_general().move_held(run, thread, r[6])
  end
  return first * 2 + ((not r[5] or tonumber(r[5]) <= c[10]) and 0 or 1)
end
`
