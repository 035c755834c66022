import { operationFields, runFields } from '../rows.ts'
import { appendChunks, streamKey } from './chunks.ts'
import { clock, counts, defineScript, doubtOpen, lines, once, publish, putMessage, quoted, setLabel, wakeRun } from './script.ts'

/**
 * One batch of changes. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 the changes as commit.ts packs them.
 *
 * Answers { now, answer, answer, … } in order. A plain step: twice its first position, plus 1 where mail waits; 0 for lease_lost.
 * Another change: { first, last, mail, created } or { refusal, operation }.
 *
 * The server checks memory and disk before a script's first write only, so a batch that began to write is written whole.
 * In the AOF it is one MULTI … EXEC; a torn tail is dropped whole.
 */
export const commitScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
local changes = cmsgpack.unpack(ARGV[6])

-- Events are pairs of checksum and entry, from index \`from\` on; \`head\` is the last position before them. A checksum is sealed with its
-- position, as in model/checksum.ts; the sum is exact in doubles.
local function append(thread, head, events, from)
  local log, first, length = P .. 'log:' .. thread, head + 1, #events
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

-- A lease that is kept lasts two thirds of what was asked for at least, and no longer than that. Nil: it may stay.
local function extended(until_, lease_ms)
  local left = tonumber(until_) - now
  if left < lease_ms * 2 / 3 or left > lease_ms then return now + lease_ms end
end

local others

-- The step of nearly every run: a lease guard, events, and of the run only its step, its claims, its lease and the start of its tape.
-- { 1, run, thread, epoch, lease, step or false, 1 progress or 2 uncount or 0, lease ms or false, starts tape, mail seen, checksum, entry, … }
local function plain(c)
  local run, thread = c[2], c[3]
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until')
  if r[1] ~= c[4] or r[2] ~= c[5] or r[3] ~= thread or c[5] == '' then return 0 end
  local head = r[4] + call('LLEN', P .. 'log:' .. thread)
  append(thread, head, c, 11)
  local first = #c < 11 and head or head + 1
  local step = c[6] and c[6] ~= r[7]
  local claims = c[7] ~= 0 and r[6] ~= '0' and (c[7] == 1 and 0 or r[6] - 1)
  local until_ = c[8] and extended(r[8], c[8])
  if step or claims or until_ or c[9] then
    call('HSET', key, 'step', c[6] or r[7], 'claims', claims or r[6], 'until', until_ or r[8])
    if c[9] then others().start_tape(run, thread, first) end
    if until_ or claims and r[6] ~= '1' then others().move(run, thread, r[6]) end
  end
  return first * 2 + ((r[5] == '0' or tonumber(r[5]) <= c[10]) and 0 or 1)
end

-- All that a plain step does not need; made when the first change of a batch needs it.
local made
function others()
  if made then return made end
${lines}
${counts}
${wakeRun}
${putMessage}
${doubtOpen}
${setLabel}
${streamKey}
${appendChunks}
  local terminal = { completed = true, failed = true, cancelled = true }

  -- After the lease or the claims of a run that is held have changed.
  local function move(run, thread, claims_before)
    if head_of_line(thread) ~= run then return end
    local version = call('HGET', P .. 'thread:' .. thread, 'version')
    local r = call('HMGET', P .. 'run:' .. run, 'lane', 'number', 'claims')
    local before = lane_of(version, r[1], claims_before, 'running')
    if before ~= lane_of(version, r[1], r[3], 'running') then hide(before, r[2], run) end
    show_run(run, version)
  end

  local function start_tape(run, thread, first)
    local key = P .. 'run:' .. run
    local r = call('HMGET', key, 'number', 'started')
    if r[2] ~= '' then return call('HSET', key, 'tape', first) end
    call('HSET', key, 'tape', first, 'started', now)
    local started = call('HGET', P .. 'thread:' .. thread, 'started')
    if tonumber(r[1]) > tonumber(started) then call('HSET', P .. 'thread:' .. thread, 'started', r[1]) end
  end

  local function read_thread(thread)
    local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'version', 'deleted', 'floor', 'started', 'head')
    return t[1] and {
      number = t[1], base = tonumber(t[2]), life = tonumber(t[3]), version = t[4], is_deleted = t[5] ~= '', floor = t[6],
      started = tonumber(t[7]), head = tonumber(t[8]),
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
      t = { number = call('INCR', P .. 'number'), base = 0, life = 1, version = '0', is_deleted = false, floor = '0', started = 0, head = 0 }
      call('HSET', key, 'number', t.number, 'base', 0, 'life', 1, 'version', 0, 'deleted', '', 'floor', 0, 'started', 0, 'head', 0, 'created', now)
      call('ZADD', P .. 'threads', t.number, thread)
    end
    t.is_empty = true
    call('ZADD', P .. 'owner-threads:' .. owner, t.number, thread)
    return t
  end

  local function is_running(run)
    return call('HGET', P .. 'run:' .. run, 'status') == 'running'
  end

  local function has_holder(thread)
    for _, run in ipairs(call('ZRANGE', P .. 'line:' .. thread, 0, -1)) do
      if is_running(run) then return true end
    end
    return false
  end

  -- A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one.
  local function has_later_start(thread, t, number)
    if t.started > tonumber(number) then return true end
    for _, run in ipairs(call('ZRANGEBYSCORE', P .. 'line:' .. thread, '(' .. number, '+inf')) do
      if is_running(run) then return true end
    end
    return false
  end

  local function judge_guard(c, t, r)
    local guard, mine = c.guard, r and r.thread == c.thread
    if guard == 'lease' then
      if not mine or c.lease == '' or r.epoch ~= c.epoch or r.lease ~= c.lease then return 'lease_lost' end
    elseif guard == 'run' then
      if not mine then return 'run_not_found' end
      if r.epoch ~= c.epoch or r.status ~= c.status then return 'conflict' end
      if c.undisturbed and has_later_start(c.thread, t, r.number) then return 'conflict' end
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
    if to.kind == 'intend' then
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
        if n.rejects and (taken[n.thread] or call('ZCARD', P .. 'line:' .. n.thread) > (ended_on == n.thread and 1 or 0)) then return true end
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
      if most and most ~= '' and call('ZCARD', P .. 'pending:' .. queue) + count > tonumber(most) then return true end
    end
    return false
  end

  local function write_operation(c, r)
    local to = c.operation
    local key = P .. 'operation:' .. to.key
    if to.kind == 'intend' then
      local before = call('HGET', key, 'thread')
      if before and before ~= c.thread then call('SREM', P .. 'operations:' .. before, to.key) end
      if before ~= c.thread then call('SADD', P .. 'operations:' .. c.thread, to.key) end
      call('HSET', key, 'status', 'intended', 'name', to.name, 'run', c.run or '', 'thread', c.thread, 'result', '', 'evidence', '', 'by', '',
        'intended', now, 'closed', '')
      if r then
        call('SADD', P .. 'intents:' .. c.run, to.key)
        if r.intends == '' then call('HSET', P .. 'run:' .. c.run, 'intends', 1) end
        r.intends = '1'
      end
      return
    end
    local found = call('HMGET', key, 'status', 'run')
    if not found[1] then return end
    if to.kind == 'note' then
      if found[1] ~= 'completed' then call('HSET', key, 'evidence', to.payload) end
      return
    end
    if found[1] == 'intended' then call('SREM', P .. 'intents:' .. found[2], to.key) end
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
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'number', 'lane',
      'due', 'wait', 'intends')
    return r[1] and {
      epoch = r[1], lease = r[2], thread = r[3], base = tonumber(r[4]), mail = r[5], claims = r[6], step = r[7], ['until'] = r[8], status = r[9],
      number = r[10], lane = r[11], due = r[12], wait = r[13], intends = r[14],
    }
  end

  -- Whether messages wait that the writer does not know.
  local function is_mail(c, r)
    return tonumber(r.mail) > (c.seen or 0)
  end

  -- After a run has got another status, time or number of claims: it enters its line, leaves it, or moves among the lanes.
  local function place(c, r, was, claims_before, version)
    local run, line = c.run, P .. 'line:' .. c.thread
    if terminal[r.status] then
      if terminal[was] then return end
      call('ZREM', line, run)
      hide(lane_of(version, r.lane, claims_before, was), r.number, run)
      local next_run = head_of_line(c.thread)
      if next_run then show_run(next_run, version) end
      return
    end
    if terminal[was] then
      -- A finished run that goes on gets its old place back; whoever had it meanwhile waits again.
      call('ZADD', line, r.number, run)
      local first = call('ZRANGE', line, 0, 1)
      if first[1] ~= run then return end
      if first[2] then
        local behind = call('HMGET', P .. 'run:' .. first[2], 'lane', 'number', 'claims', 'status')
        hide(lane_of(version, behind[1], behind[3], behind[4]), behind[2], first[2])
      end
    elseif head_of_line(c.thread) ~= run then
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
      put('finished', terminal[to.status] and now or '')
      if to.status ~= 'waiting' and r.wait ~= '' then wait_for('') end
    end
    if r.status ~= 'running' then
      if r.lease ~= '' then
        put('lease', '')
        put('until', '')
        put('holder', '')
      end
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
      start_tape(run, c.thread, first)
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
    if terminal[r.status] and r.intends ~= '' then doubt_open(run) end
    if is_moved then place(c, r, was, claims_before, t.version) end
    if to.status or (is_moved and r.status == 'pending') then count_run(r.lane, run, was, r.status, r.due) end
  end

  local function create(n)
    local key = P .. 'run:' .. n.run
    if call('EXISTS', key) == 1 then return { 0, cjson.encode(call('HMGET', key, ${quoted(runFields)})) } end
    local t = open_thread(n.thread, n.owner, read_thread(n.thread))
    local head = t.is_empty and t.base or head_of(n.thread, t)
    append(n.thread, head, n.events, 1)
    local number = call('INCR', P .. 'number')
    local due = n.due_ms and now + n.due_ms or n.due
    local is_head = t.is_empty or not head_of_line(n.thread)
    local is_ready = is_head and due <= now
    -- What a plain step reads comes first: a short hash is searched from its beginning.
    call('HSET', key, 'epoch', t.floor, 'lease', '', 'thread', n.thread, 'base', t.base, 'mail', 0, 'claims', 0, 'step', '', 'until', '',
      'status', 'pending', 'number', number, 'lane', n.lane, 'due', due, 'wait', '', 'intends', '', 'reason', '', 'holder', '', 'input', head + 1,
      'tape', '', 'end', '', 'fingerprint', n.fingerprint, 'created', now, 'started', '', 'finished', '', 'owner', n.owner, 'ready', is_ready and 'n' or '')
    count_run(n.lane, n.run, nil, 'pending', due)
    call('ZADD', P .. 'runs:' .. n.thread, number, n.run)
    call('ZADD', P .. 'owner-runs:' .. n.owner, number, n.run)
    call('ZADD', P .. 'line:' .. n.thread, number, n.run)
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
      if head then
        local r = call('HMGET', P .. 'run:' .. head, 'lane', 'number', 'claims', 'status')
        hide(lane_of(t.version, r[1], r[3], r[4]), r[2], head)
      end
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
    if c.label then set_label(c.thread, c.label, last) end
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
      t = { base = r.base, version = call('HGET', P .. 'thread:' .. thread, 'version'), is_deleted = false }
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
      append(thread, last, c.events, 1)
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
      if r then r.mail = call('HGET', P .. 'run:' .. c.run, 'mail') end
    end
    return { first, last, r and is_mail(c, r) and 1 or 0, created }
  end

  made = { judge_and_write = judge_and_write, move = move, start_tape = start_tape }
  return made
end

local answer = { now }
for i, c in ipairs(changes) do
  answer[i + 1] = c[1] == 1 and plain(c) or others().judge_and_write(c)
end
${publish}
return keep(answer)
`,
)
