import { operationFields } from '../rows.ts'
import { appendChunks, streamKey } from './chunks.ts'
import { gatheredListing, listing, setLabel } from './listing.ts'
import {
  clock,
  counts,
  defineScript,
  foreignOf,
  gathering,
  laneIndex,
  lines,
  once,
  places,
  publish,
  putMessage,
  quoted,
  replyOf,
  rowOf,
  settleOpen,
  wakeRun,
} from './script.ts'

/**
 * One batch of changes. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 the changes as commit.ts packs them.
 *
 * Answers { now, answer, answer, … } in order. A plain step or end: twice its first position, plus 1 where mail waits; 0 for lease_lost.
 * A plain start that begins a thread: when the run is due. Another change: { first, last, mail, created } or { refusal, operation }.
 *
 * The server checks memory and disk before a script's first write only, so a batch that began to write is written whole.
 * In the AOF it is one MULTI … EXEC; a torn tail is dropped whole, for which settings.ts has to do something.
 */
export const commitScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
local changes = cmsgpack.unpack(ARGV[6])
-- Numbers are given to the server as text: it would write each with 17 digits.
local now_text = string.format('%d', now)
${foreignOf}
${replyOf}

-- Events are pairs of checksum and entry, from index \`from\` on; \`head\` is the last position before them. A checksum is sealed with its
-- position, as in model/checksum.ts; the sum is exact in doubles.
local function append(log, head, events, from)
  local first, length = head + 1, #events
  if length == from + 3 then
    call('RPUSH', log, (events[from] + first) % 4294967296 .. ' ' .. events[from + 1],
      (events[from + 2] + first + 1) % 4294967296 .. ' ' .. events[from + 3])
  elseif length == from + 1 then
    call('RPUSH', log, (events[from] + first) % 4294967296 .. ' ' .. events[from + 1])
  elseif length > from then
    local entries, count = {}, 0
    for i = from, length, 2 do
      entries[count + 1] = (events[i] + first + count) % 4294967296 .. ' ' .. events[i + 1]
      count = count + 1
    end
    for i = 1, count, 1000 do call('RPUSH', log, unpack(entries, i, math.min(i + 999, count))) end
  end
end

-- Position and sealed checksum of the event with this number among them.
local function position_text(head, number)
  return string.format('%d', head + number)
end
local function sealed_text(events, from, head, number)
  return string.format('%d', (events[from + 2 * (number - 1)] + head + number) % 4294967296)
end

-- A lease that is kept lasts two thirds of what was asked for at least, and no longer than that. Nil: it may stay.
local function extended(until_, lease_ms)
  local left = tonumber(until_) - now
  if left < lease_ms * 2 / 3 or left > lease_ms then return now + lease_ms end
end

local function copy_from(from, list)
  local copy = {}
  for i = from, #list do copy[#copy + 1] = list[i] end
  return copy
end

local prepare

-- What nearly every change is: a lease guard, events, and of the run only its step, its claims, its lease, the start of its tape, and its end.
-- { 1, run, thread, epoch, lease, step or false, 1 progress or 2 uncount or 0, lease ms or false, starts tape, mail seen, status at the end or
-- false, last position under a lease that is known or false, which of its events is the last with a patch or 0, checksum, entry, … }
local function plain(c)
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
  local t = ends and call('HMGET', thread_key, 'version', 'run', 'foreign')
  if ends and (t[2] ~= run or r[9] ~= 'running' or (r[12] or '') ~= '' or (r[13] or '') ~= '') then
    -- Others wait behind it, or it leaves something open.
    return prepare().others().judge_and_write({
      thread = thread, run = run, guard = 'lease', epoch = c[4], lease = c[5], seen = c[10], written = c[12], patched = c[13], events = copy_from(14, c),
      change = { status = ends, reason = '', step = c[6], progress = c[7] == 1, uncount = c[7] == 2, tape = c[9], ends = true },
    })
  end
  local log = P .. 'log:' .. thread
  local head = (r[4] or 0) + call('LLEN', log)
  local foreign
  if ends then foreign = t[3] else foreign = call('HGET', thread_key, 'foreign') end
  if c[12] and head - foreign_of(foreign, tonumber(r[4] or 0), head) < c[12] then return 0 end
  append(log, head, c, 14)
  local first = #c < 14 and head or head + 1
  if c[13] ~= 0 then call('HSET', thread_key, 'patch', position_text(head, c[13]), 'checksum', sealed_text(c, 14, head, c[13])) end
  if foreign and foreign ~= '0' and #c >= 14 then call('HSET', thread_key, 'foreign', '0') end
  local claims = c[7] ~= 0 and (r[6] or '0') ~= '0' and (c[7] == 1 and '0' or r[6] - 1)
  local set = {}
  if c[6] and c[6] ~= (r[7] or '') then set[1], set[2] = 'step', c[6] end
  if claims then set[#set + 1], set[#set + 2] = 'claims', claims end
  local until_ = not ends and c[8] and extended(r[8], c[8])
  if until_ then set[#set + 1], set[#set + 2] = 'until', until_ end
  if c[9] then
    set[#set + 1], set[#set + 2] = 'tape', first
    if ((ends and r[15] or not ends and call('HGET', key, 'started')) or '') == '' then set[#set + 1], set[#set + 2] = 'started', now_text end
  end
  if ends then
    if (r[14] or '') ~= '' then set[#set + 1], set[#set + 2] = 'reason', '' end
    call('HSET', key, 'status', ends, 'lease', '', 'end', head + (#c - 13) / 2, 'finished', now_text, unpack(set))
    local to = prepare()
    local member = to.member_of(r[10], run)
    to.remove_later(P .. 'lane:' .. to.lane_of(t[1] or '0', r[11], r[6], 'running'), member)
    to.count_later(to.queue_of(r[11]), 'running', -1)
    to.list_later(r[17] or '', r[11], member, r[16], 'running', ends)
  elseif #set > 0 then
    call('HSET', key, unpack(set))
    if until_ or claims and r[6] ~= '1' then prepare().others().move(run, thread, r[6]) end
  end
  return first * 2 + ((not r[5] or tonumber(r[5]) <= c[10]) and 0 or 1)
end

-- All that plain steps do not need; made when the first change of a batch needs it.
local prepared
function prepare()
  if prepared then return prepared end
${places}
${laneIndex}
${gathering}
${listing}
${gatheredListing}
-- What a plain step reads comes first: a short hash is searched from its beginning.
local function write_run(key, thread, owner, lane, fingerprint, number, due, is_ready, epoch, base, input)
  call('HSET', key, 'epoch', epoch, 'thread', thread, 'status', 'pending', 'number', number, 'lane', lane, 'due', due, 'ready', is_ready and 'n' or '',
    'fingerprint', fingerprint, 'created', now_text)
  if owner ~= '' then call('HSET', key, 'owner', owner) end
  if input ~= '1' then call('HSET', key, 'base', base, 'input', input) end
end

local others
-- How many runs a queue still takes in, and the last number that was given.
local rooms, last_number = {}
-- Where runs of one owner and lane go: nearly always the same as those of the change before.
local way = {}

local function way_of(owner, lane)
  if way.owner == owner and way.lane == lane then return way end
  way = {
    owner = owner, lane = lane, queue = queue_of(lane), threads = P .. 'owner-threads:' .. owner,
    due = '0:n:' .. lane, ready = ready_key('0:n:' .. lane, owner), sleeping = P .. 'lane:0:-:' .. lane,
  }
  return way
end

local function settle()
  write_gathered()
  if last_number then call('SET', P .. 'number', string.format('%d', last_number)) end
  rooms, last_number = {}, nil
end

-- Nearly every start: one run that nobody refuses, without a guard. { 2, run, thread, owner, lane, fingerprint, due ms or false, due or false, whether it
-- refuses to get in line, checksum, entry }
local function start(c)
  local run, thread, owner, lane = c[2], c[3], c[4], c[5]
  local run_key, thread_key = P .. 'run:' .. run, P .. 'thread:' .. thread
  if call('EXISTS', run_key, thread_key) > 0 then
    return others().judge_and_write({
      thread = thread, owner = owner, guard = 'none', events = {}, rejects = c[9],
      creates = { { run = run, thread = thread, owner = owner, lane = lane, fingerprint = c[6], due_ms = c[7], due = c[8], rejects = c[9], events = copy_from(10, c) } },
    })
  end
  local to = way_of(owner, lane)
  local queue = to.queue
  if not rooms[queue] then
    local most = call('HGET', P .. 'queue:' .. queue, 'max_queued')
    rooms[queue] = most and most ~= '' and most - (call('HGET', P .. 'counts:' .. queue, 'pending') or 0) or math.huge
  end
  if rooms[queue] < 1 then return { 'queue_full' } end
  rooms[queue] = rooms[queue] - 1
  last_number = (last_number or tonumber(call('GET', P .. 'number') or 0)) + 2
  local thread_number, number = string.format('%d', last_number - 1), string.format('%d', last_number)
  local due = c[7] and now + c[7] or c[8]
  local due_text, is_ready = string.format('%d', due), due <= now
  call('RPUSH', P .. 'log:' .. thread, (c[10] + 1) % 4294967296 .. ' ' .. c[11])
  call('HSET', thread_key, 'run', run, 'number', thread_number, 'created', now_text)
  write_run(run_key, thread, owner, lane, c[6], number, due_text, is_ready, '0', '0', '1')
  add_later(P .. 'threads', thread_number, thread)
  add_later(to.threads, thread_number, thread)
  local member = member_of(number, run)
  list_later(owner, lane, member, now_text, nil, 'pending')
  count_later(queue, 'pending', 1)
  if is_ready then
    note_due_later(to.due, owner, due)
    add_later(to.ready, due_text, member)
  else
    note_time_later('0:-:' .. lane, due)
    add_later(to.sleeping, due_text, member)
    add_later(P .. 'delayed:' .. queue, due_text, run)
  end
  return due
end

-- All that starts do not need either. It sees what was gathered before.
local made
function others()
  settle()
  if made then return made end
${lines}
${counts}
${wakeRun}
${putMessage}
${settleOpen}
${setLabel}
${streamKey}
${appendChunks}
${rowOf}
  local terminal = is_over

  -- After the lease or the claims of a run that is held have changed.
  local function move(run, thread, claims_before)
    local t = call('HMGET', P .. 'thread:' .. thread, 'version', 'run')
    if t[2] ~= run and head_of_line(thread) ~= run then return end
    local version = t[1] or '0'
    local r = call('HMGET', P .. 'run:' .. run, 'lane', 'claims', 'number')
    local before = lane_of(version, r[1], claims_before, 'running')
    if before ~= lane_of(version, r[1], r[2], 'running') then hide(before, r[3], run) end
    show_run(run, version)
  end

  local function read_thread(thread)
    local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'version', 'deleted', 'floor', 'head', 'run', 'foreign')
    return t[1] and {
      number = t[1], base = tonumber(t[2] or 0), life = tonumber(t[3] or 1), version = t[4] or '0', is_deleted = (t[5] or '') ~= '',
      floor = t[6] or '0', head = tonumber(t[7] or 0), run = t[8], foreign = t[9],
    }
  end

  local function head_of(thread, t)
    if not t then return 0 end
    if t.is_deleted then return t.head end
    return t.base + call('LLEN', P .. 'log:' .. thread)
  end

  -- The thread as it is; a new one where there is none; a new life where it was deleted.
  local function open_thread(thread, owner, t)
    if t and not t.is_deleted then return t end
    local key = P .. 'thread:' .. thread
    if t then
      call('HSET', key, 'life', t.life + 1, 'base', t.head, 'deleted', '')
      t.life, t.base, t.is_deleted = t.life + 1, t.head, false
    else
      t = { number = call('INCR', P .. 'number'), base = 0, life = 1, version = '0', is_deleted = false, floor = '0', head = 0, run = '', foreign = false }
      call('HSET', key, 'run', '', 'number', t.number, 'created', now_text)
      call('ZADD', P .. 'threads', t.number, thread)
    end
    t.is_empty = true
    call('ZADD', P .. 'owner-threads:' .. owner, t.number, thread)
    return t
  end

  -- After events were appended behind position \`head\`: what the thread knows of those that were not written under a lease, and of its last patch.
  local function note_events(thread, t, events, head, is_leased, patched)
    local set = {}
    local foreign = is_leased and 0 or foreign_of(t.foreign, t.base, head) + #events / 2
    if foreign ~= foreign_of(t.foreign, t.base, head + #events / 2) then
      t.foreign = string.format('%d', foreign)
      set[1], set[2] = 'foreign', t.foreign
    end
    if patched and patched ~= 0 then
      set[#set + 1], set[#set + 2] = 'patch', position_text(head, patched)
      set[#set + 1], set[#set + 2] = 'checksum', sealed_text(events, 1, head, patched)
    end
    if #set > 0 then call('HSET', P .. 'thread:' .. thread, unpack(set)) end
  end

  local function has_holder(thread)
    for _, run in ipairs(line_of(thread, -1)) do
      if call('HGET', P .. 'run:' .. run, 'status') == 'running' then return true end
    end
    return false
  end

  local function length_of_line(thread, t)
    return t and t.run ~= '' and #line_of(thread, 0) or call('ZCARD', P .. 'line:' .. thread)
  end

  -- A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one.
  local function has_later_start(thread, number)
    for _, run in ipairs(call('ZRANGEBYSCORE', P .. 'runs:' .. thread, '(' .. number, '+inf')) do
      local r = call('HMGET', P .. 'run:' .. run, 'status', 'started')
      if r[1] == 'running' or (r[2] or '') ~= '' then return true end
    end
    return false
  end

  local function judge_guard(c, t, r)
    local guard, mine = c.guard, r and r.thread == c.thread
    if guard == 'lease' then
      if not mine or c.lease == '' or r.epoch ~= c.epoch or r.lease ~= c.lease then return 'lease_lost' end
      if c.written then
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
      -- Without a guard a late writer must still not bring a deleted thread back, nor write for a run that is gone.
      if t and t.is_deleted then return 'thread_deleted' end
      if c.run and not mine then return 'run_not_found' end
    end
  end

  local function judge_operation(c)
    local to = c.operation
    local found = call('HMGET', P .. 'operation:' .. to.key, 'status', 'run')
    local status = found[1]
    if to.kind == 'intend' or to.kind == 'ask' then
      if status and status ~= 'failed' and status ~= 'undone' then return 'operation_taken' end
    elseif to.kind == 'resolve' then
      if status ~= 'unsure' then return 'already_answered' end
    elseif to.kind == 'undo' then
      if found[2] ~= c.run or status ~= 'completed' then return 'conflict' end
    elseif to.kind ~= 'note' then
      if found[2] ~= c.run or (status ~= 'intended' and status ~= 'unsure') then return 'conflict' end
    end
  end

  -- Whether a run to be created refuses to get in line and would have to.
  local function is_busy(c, r)
    local created, taken = {}, {}
    local ended_on = r and c.change and terminal[c.change.status] and not terminal[r.status] and r.thread
    for _, n in ipairs(c.creates) do
      if not created[n.run] and call('EXISTS', P .. 'run:' .. n.run) == 0 then
        if n.rejects and (taken[n.thread] or length_of_line(n.thread, read_thread(n.thread)) > (ended_on == n.thread and 1 or 0)) then return true end
        created[n.run] = true
        taken[n.thread] = true
      end
    end
    return false
  end

  -- Whether a queue has no room for the runs to be created.
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

  local function write_operation(c, r)
    local to = c.operation
    local key = P .. 'operation:' .. to.key
    if to.kind == 'intend' or to.kind == 'ask' then
      local is_question = to.kind == 'ask'
      local before = call('HGET', key, 'thread')
      if before and before ~= c.thread then call('SREM', P .. 'operations:' .. before, to.key) end
      if before ~= c.thread then call('SADD', P .. 'operations:' .. c.thread, to.key) end
      call('HSET', key, 'status', is_question and 'unsure' or 'intended', 'kind', is_question and 'question' or 'effect', 'name', to.name, 'run', c.run or '', 'thread', c.thread, 'result', '', 'evidence', '', 'by', '',
        'intended', now, 'closed', '')
      if r then
        call('SADD', P .. 'intents:' .. c.run, to.key)
        if r.intends == '' then call('HSET', P .. 'run:' .. c.run, 'intends', 1) end
        r.intends = '1'
      end
      if is_question then call('ZADD', P .. 'unsure', now, to.key) end
      return
    end
    local found = call('HMGET', key, 'status', 'run', 'kind')
    if not found[1] then return end
    if to.kind == 'note' then
      if found[1] ~= 'completed' then call('HSET', key, 'evidence', to.payload) end
      return
    end
    local is_left_open = to.kind == 'doubt' and found[3] == 'question'
    if not is_left_open and (found[1] == 'intended' or found[3] == 'question') then call('SREM', P .. 'intents:' .. found[2], to.key) end
    if found[1] == 'unsure' then call('ZREM', P .. 'unsure', to.key) end
    if to.kind == 'doubt' then return doubt(to.key) end
    if to.kind == 'undo' then return call('HSET', key, 'status', 'undone', 'closed', now) end
    if to.kind == 'complete' or to.happened then
      call('HSET', key, 'status', 'completed', 'result', to.payload, 'closed', now)
    else
      call('HSET', key, 'status', 'failed', 'closed', now)
    end
    if to.kind == 'resolve' then call('HSET', key, 'by', to.by) end
    for _, run in ipairs(call('SMEMBERS', P .. 'waiting:' .. to.key)) do wake_run(run) end
  end

  local function is_open(operation)
    local status = call('HGET', P .. 'operation:' .. operation, 'status')
    return status == 'intended' or status == 'unsure'
  end

  local function read_run(run)
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'due', 'wait',
      'intends', 'started', 'lane', 'number', 'created', 'owner')
    if not r[1] then return end
    return {
      epoch = r[1], lease = r[2] or '', thread = r[3], base = tonumber(r[4] or 0), mail = r[5] or '0', claims = r[6] or '0', step = r[7] or '',
      ['until'] = r[8] or '', status = r[9], due = r[10], wait = r[11] or '', intends = r[12] or '', started = r[13] or '', lane = r[14],
      number = r[15], created = r[16], owner = r[17] or '',
    }
  end

  -- Whether messages wait that the writer does not know.
  local function is_mail(c, r)
    return tonumber(r.mail) > (c.seen or 0)
  end

  -- After a run has got another status, time or number of claims: it enters its line, leaves it, or moves among the lanes.
  local function place(c, t, r, was, claims_before)
    local run, line, version = c.run, P .. 'line:' .. c.thread, t.version
    local is_only = t.run == run
    if terminal[r.status] then
      if terminal[was] then return end
      if not is_only then call('ZREM', line, run) end
      hide(lane_of(version, r.lane, claims_before, was), r.number, run)
      local next_run = not is_only and head_of_line(c.thread)
      if next_run then show_run(next_run, version) end
      return
    end
    if terminal[was] and not is_only then
      -- A finished run that goes on gets its old place back; whoever had it meanwhile waits again.
      call('ZADD', line, r.number, run)
      local first = call('ZRANGE', line, 0, 1)
      if first[1] ~= run then return end
      if first[2] then hide_run(first[2], version) end
    elseif not is_only and head_of_line(c.thread) ~= run then
      return
    elseif lane_of(version, r.lane, claims_before, was) ~= lane_of(version, r.lane, r.claims, r.status) then
      hide(lane_of(version, r.lane, claims_before, was), r.number, run)
    end
    local at = ''
    if r.status == 'running' then at = r['until'] elseif r.status ~= 'paused' then at = r.due end
    show(lane_of(version, r.lane, r.claims, r.status), r.number, run, at)
  end

  local function change_run(c, t, r, first, last)
    local run, to, set = c.run, c.change, {}
    local was, claims_before, is_moved = r.status, r.claims, c.change.status
    local function put(field, value)
      r[field] = value
      set[#set + 1] = field
      set[#set + 1] = value
    end
    local function wait_for(operation)
      if r.wait ~= '' then call('SREM', P .. 'waiting:' .. r.wait, run) end
      if operation ~= '' then call('SADD', P .. 'waiting:' .. operation, run) end
      put('wait', operation)
    end
    local function be_due(at)
      put('due', at)
      is_moved = true
    end
    if to.status then
      put('status', to.status)
      put('finished', terminal[to.status] and now_text or '')
      if to.status ~= 'waiting' and r.wait ~= '' then wait_for('') end
    end
    if r.status ~= 'running' then
      if r.lease ~= '' then put('lease', '') end
    elseif c.guard == 'lease' and to.lease_ms then
      local until_ = extended(r['until'], to.lease_ms)
      if until_ then
        put('until', until_)
        is_moved = true
      end
    end
    if to.reason then put('reason', to.reason) end
    if to.step and to.step ~= r.step then put('step', to.step) end
    if (to.progress or to.uncount) and r.claims ~= '0' then
      put('claims', to.progress and 0 or r.claims - 1)
      is_moved = true
    end
    if to.tape then
      put('tape', first)
      if r.started == '' then put('started', now_text) end
      if to.input then put('input', first) end
    end
    if to.ends then put('end', last) end
    if to.due_ms then be_due(now + to.due_ms) elseif to.due then be_due(to.due) end
    if to.wait then
      wait_for(to.wait)
      if not is_open(to.wait) then be_due(now) end
    end
    if to.status == 'waiting' and is_mail(c, r) and (r.due == '' or tonumber(r.due) > now) then be_due(now) end
    if #set > 0 then call('HSET', P .. 'run:' .. run, unpack(set)) end
    if (terminal[r.status] or to.tape and to.input) and r.intends ~= '' then settle_open(run, now_text) end
    if is_moved then place(c, t, r, was, claims_before) end
    if to.status or (is_moved and r.status == 'pending') then count_run(r.lane, run, was, r.status, r.due, r.created) end
    if to.status then list_run(r.owner, r.lane, r.number, run, r.created, was, r.status) end
  end

  -- A second run comes: from here on the runs of the thread have keys of their own.
  local function unfold(thread, first)
    local r = call('HMGET', P .. 'run:' .. first, 'number', 'status')
    call('ZADD', P .. 'runs:' .. thread, r[1], first)
    if not terminal[r[2]] then call('ZADD', P .. 'line:' .. thread, r[1], first) end
    call('HSET', P .. 'thread:' .. thread, 'run', '')
  end

  local function create(n)
    local key = P .. 'run:' .. n.run
    if call('EXISTS', key) == 1 then return { 0, cjson.encode((row_of(n.run))) } end
    local t = open_thread(n.thread, n.owner, read_thread(n.thread))
    local head = t.is_empty and t.base or head_of(n.thread, t)
    append(P .. 'log:' .. n.thread, head, n.events, 1)
    note_events(n.thread, t, n.events, head, false, n.patched)
    local number = string.format('%d', call('INCR', P .. 'number'))
    local due = n.due_ms and now + n.due_ms or n.due
    local is_only = t.is_empty or (t.run == '' and call('EXISTS', P .. 'runs:' .. n.thread) == 0)
    if t.run ~= '' then unfold(n.thread, t.run) end
    local is_head = is_only or not head_of_line(n.thread)
    local is_ready = is_head and due <= now
    write_run(key, n.thread, n.owner, n.lane, n.fingerprint, number, due, is_ready, t.floor, t.base, string.format('%d', head + 1))
    count_run(n.lane, n.run, nil, 'pending', due, now)
    list_run(n.owner, n.lane, number, n.run, now_text, nil, 'pending')
    if is_only then
      call('HSET', P .. 'thread:' .. n.thread, 'run', n.run)
    else
      call('ZADD', P .. 'runs:' .. n.thread, number, n.run)
      call('ZADD', P .. 'line:' .. n.thread, number, n.run)
    end
    if is_ready then
      add_ready(t.version .. ':n:' .. n.lane, n.owner, number, n.run, due)
    elseif is_head then
      show(lane_of(t.version, n.lane, 0, 'pending'), number, n.run, due)
    end
    return { 1, head + 1, t.floor, due }
  end

  local function write_state(c, t, last)
    if c.version and c.version ~= t.version then
      -- The head of the line changes to the lanes of the new version.
      local head = head_of_line(c.thread)
      if head then hide_run(head, t.version) end
      call('HSET', P .. 'thread:' .. c.thread, 'version', c.version)
      t.version = c.version
      if head then show_run(head, t.version) end
    end
    if c.snapshot then
      local key = P .. 'snapshots:' .. c.thread
      call('ZREMRANGEBYSCORE', key, last, last)
      local sealed = (c.snapshot[1] + last + 65537 * tonumber(t.version)) % 4294967296
      call('ZADD', key, last, last .. ' ' .. sealed .. ' ' .. t.version .. ' ' .. c.snapshot[2])
    end
    if c.label then set_label(c.thread, c.label, last, c.run) end
  end

  local function read_mail(c, r)
    local inbox = P .. 'inbox:' .. c.run
    for i = 1, #c.read, 1000 do call('HDEL', inbox, unpack(c.read, i, math.min(i + 999, #c.read))) end
    -- Another one is looked for only when the latest was read.
    if call('HEXISTS', inbox, r.mail) == 1 then return end
    r.mail = '0'
    for _, id in ipairs(call('HKEYS', inbox)) do
      if tonumber(id) > tonumber(r.mail) then r.mail = id end
    end
    call('HSET', P .. 'run:' .. c.run, 'mail', r.mail)
  end

  local function judge_and_write(c)
    local thread = c.thread
    local r = c.run and read_run(c.run)
    local t
    if c.guard == 'lease' and r and r.thread == thread then
      -- A run is not there without its thread, which it knows well enough.
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
    if r and c.read then read_mail(c, r) end
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
    return { first, last, r and is_mail(c, r) and 1 or 0, created }
  end

  made = { judge_and_write = judge_and_write, move = move }
  return made
end

prepared = {
  start = start, others = others, settle = settle, remove_later = remove_later, count_later = count_later, lane_of = lane_of, member_of = member_of,
  queue_of = queue_of, list_later = list_later,
}
return prepared
end

local answer = { now }
local is_done, problem = pcall(function()
  for i, c in ipairs(changes) do
    if c[1] == 1 then
      answer[i + 1] = plain(c)
    elseif c[1] == 2 then
      answer[i + 1] = prepare().start(c)
    else
      answer[i + 1] = prepare().others().judge_and_write(c)
    end
  end
end)
-- A damaged key breaks the batch; what came before it is there whole.
if prepared then prepared.settle() end
if not is_done then return reply_of(problem) end
${publish}
return keep(answer)
`,
)
