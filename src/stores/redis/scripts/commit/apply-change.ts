import { operationFields } from '../../rows.ts'
import { quoted } from '../script.ts'

/** Any change: judges all of it first, then writes it, since nothing is rolled back. Needs all other parts of the commit. */
export const applyChange = `
local function write_state(c, t, last)
  if c.version and c.version ~= t.version then
    -- Lanes are per state version, so that a worker of an older version does not claim the run: the thread's next run changes lanes.
    local next_run = next_run_of(c.thread)
    if next_run then make_unclaimable(next_run, t.version) end
    call('HSET', P .. 'thread:' .. c.thread, 'version', c.version)
    t.version = c.version
    if next_run then make_claimable(next_run, t.version) end
  end
  if c.snapshot then
    local key = P .. 'snapshots:' .. c.thread
    call('ZREMRANGEBYSCORE', key, last, last)
    local sealed = (c.snapshot[1] + last + 65537 * tonumber(t.version)) % 4294967296
    call('ZADD', key, last, last .. ' ' .. sealed .. ' ' .. t.version .. ' ' .. c.snapshot[2])
  end
  if c.label then set_label(c.thread, c.label, last, c.run) end
end

local function delete_read_messages(c, r)
  local inbox = P .. 'inbox:' .. c.run
  for i = 1, #c.read, 1000 do call('HDEL', inbox, unpack(c.read, i, math.min(i + 999, #c.read))) end
  -- \`mail\` names the latest unread message: it changes only if that one was read.
  if call('HEXISTS', inbox, r.mail) == 1 then return end
  r.mail = '0'
  for _, id in ipairs(call('HKEYS', inbox)) do
    if tonumber(id) > tonumber(r.mail) then r.mail = id end
  end
  call('HSET', P .. 'run:' .. c.run, 'mail', r.mail)
end

local function apply_change(c)
  local thread = c.thread
  local r = c.run and read_run(c.run)
  local t
  if c.guard == 'lease' and r and r.thread == thread then
    -- A run under a lease exists only together with its thread, and knows most of it: three fields are enough.
    local row = call('HMGET', P .. 'thread:' .. thread, 'version', 'run', 'foreign')
    t = { base = r.base, version = row[1] or '0', run = row[2], foreign = row[3], is_deleted = false }
  else
    t = read_thread(thread)
  end

  local refusal = judge_guard(c, t, r)
  if refusal then return { refusal } end
  refusal = c.operation and judge_operation(c)
  if refusal == 'conflict' then return { refusal } end
  if refusal then return { refusal, call('HMGET', P .. 'operation:' .. c.operation.key, ${quoted(operationFields)}) } end
  local other = c.records and load_records().judge(c.records)
  if other then return other end
  if c.rejects and is_busy(c, r) then return { 'conflict' } end
  if c.guard == 'none' and c.creates and is_full(c) then return { 'queue_full' } end

  if #c.events > 0 or c.guard == 'thread' then t = open_thread(thread, c.owner, t) end
  local last = head_of(thread, t)
  local first = last
  if #c.events > 0 then
    append(P .. 'log:' .. thread, last, c.events, 1)
    note_events(thread, t, c.events, last, c.guard == 'lease', c.patched)
    first, last = last + 1, last + #c.events / 2
  end
  if t then write_state(c, t, last) end
  if c.operation then write_operation(c, r) end
  if c.records then load_records().write(c.records) end
  if r and c.read then delete_read_messages(c, r) end
  if r and c.change then change_run(c, t, r, first, last) end
  if r and c.chunks then append_chunks(c.run, c.chunks) end

  local created = {}
  for i, n in ipairs(c.creates or {}) do
    created[i] = create(n)
    if #c.events == 0 and n.thread == thread and created[i][1] == 1 then first, last = created[i][2], created[i][2] end
  end
  if c.delivers then
    for _, m in ipairs(c.delivers) do put_message(m[1], m[2], m[3]) end
    if r then r.mail = call('HGET', P .. 'run:' .. c.run, 'mail') or '0' end
  end
  return { first, last, r and has_unseen_mail(c, r) and 1 or 0, created }
end
`
