import { operationFields, runFields } from '../rows.ts'
import { clock, defineScript, doubtOpen, lines, once, publish, quoted, setLabel, wakeRun } from './script.ts'

/**
 * One batch of changes. ARGV: 1 life, 2 clock offset, 3 slot, 4 number, 5 publication, 6 the changes as commit.ts packs them.
 *
 * Answers { now, answer, answer, … } in order. A plain step: twice its first position, plus 1 where mail waits; 0 for lease_lost.
 * Another change: { first, last, mail, woken, created } or { refusal, operation }.
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

-- Events are pairs of checksum and entry, from index \`from\` on. A checksum is sealed with its position, as in
-- model/checksum.ts; the sum is exact in doubles. Returns the position of the first.
local function append(thread, base, events, from)
  local log = P .. 'log:' .. thread
  local first = base + call('LLEN', log) + 1
  local length = #events
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
  return first
end

-- A lease that is kept lasts two thirds of what was asked for at least, and no longer than that. Nil: it may stay.
local function extended(until_, lease_ms)
  local left = tonumber(until_) - now
  if left < lease_ms * 2 / 3 or left > lease_ms then return now + lease_ms end
end

local others

-- The step of nearly every run: a lease guard, events, and of the run only its step, its claims, its lease and the start of its tape.
-- { 1, run, thread, epoch, lease, step or false, progress, lease ms or false, starts tape, checksum, entry, … }
local function plain(c)
  local run = c[2]
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until')
  if r[1] ~= c[4] or r[2] ~= c[5] or r[3] ~= c[3] or c[5] == '' then return 0 end
  local first = append(c[3], tonumber(r[4]), c, 10)
  if #c < 10 then first = first - 1 end
  if c[6] and c[6] ~= r[7] then call('HSET', key, 'step', c[6]) end
  if c[9] then others().start_tape(run, c[3], first) end
  local claims = c[7] ~= 0 and r[6] ~= '0' and (c[7] == 1 and 0 or r[6] - 1)
  local until_ = c[8] and extended(r[8], c[8])
  if claims then call('HSET', key, 'claims', claims) end
  if until_ then call('HSET', key, 'until', until_) end
  if until_ or claims and r[6] ~= '1' then others().move(run, c[3], r[6]) end
  return first * 2 + (r[5] == '0' and 0 or 1)
end

-- All that a plain step does not need; made when the first other change of a batch is met.
local made
function others()
  if made then return made end
${lines}
${wakeRun}
${doubtOpen}
${setLabel}
  local terminal = { completed = true, failed = true, cancelled = true }

  -- After the lease or the claims of a run have changed.
  local function move(run, thread, claims_before)
    if head_of_line(thread) ~= run then return end
    local version = call('HGET', P .. 'thread:' .. thread, 'version')
    local r = call('HMGET', P .. 'run:' .. run, 'lane', 'number', 'claims')
    local before = lane_of(version, r[1], claims_before)
    if before ~= lane_of(version, r[1], r[3]) then hide(before, r[2], run) end
    show_run(run, version)
  end

  local function start_tape(run, thread, first)
    local r = call('HMGET', P .. 'run:' .. run, 'number', 'started')
    call('HSET', P .. 'run:' .. run, 'tape', first, 'started', r[2] == '' and now or r[2])
    if tonumber(r[1]) > tonumber(call('HGET', P .. 'thread:' .. thread, 'started')) then
      call('HSET', P .. 'thread:' .. thread, 'started', r[1])
    end
  end

  local function read_thread(thread)
    local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'version', 'deleted', 'floor', 'started', 'held', 'head')
    return t[1] and {
      number = t[1], base = tonumber(t[2]), life = tonumber(t[3]), version = t[4], is_deleted = t[5] ~= '', floor = t[6],
      started = tonumber(t[7]), held = t[8], head = tonumber(t[9]),
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
      t = { number = call('INCR', P .. 'number'), base = 0, life = 1, version = '0', is_deleted = false, floor = '0', started = 0, held = '0', head = 0 }
      call('HSET', key, 'number', t.number, 'base', 0, 'life', 1, 'version', 0, 'deleted', '', 'floor', 0, 'started', 0, 'held', 0,
        'head', 0, 'created', now)
    end
    call('ZADD', P .. 'owner-threads:' .. owner, t.number, thread)
    return t
  end

  -- A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one.
  local function has_later_start(thread, t, number)
    if t.started > tonumber(number) then return true end
    if t.held == '0' then return false end
    for _, other in ipairs(call('ZRANGEBYSCORE', P .. 'line:' .. thread, '(' .. number, '+inf')) do
      if call('HGET', P .. 'run:' .. other, 'status') == 'running' then return true end
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
      if t.held ~= '0' or head_of(c.thread, t) ~= c.head then return 'conflict' end
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
    elseif to.kind ~= 'note' then
      if found[2] ~= c.run or (status ~= 'intended' and status ~= 'unsure') then return 'conflict' end
    end
  end

  -- Whether a run to be created refuses to get in line and would have to.
  local function is_busy(c, r)
    local created, taken = {}, {}
    local ends = r and c.change and terminal[c.change.status] and not terminal[r.status] and r.thread
    for _, n in ipairs(c.creates) do
      if not created[n.run] and call('EXISTS', P .. 'run:' .. n.run) == 0 then
        if n.rejects and (taken[n.thread] or call('ZCARD', P .. 'line:' .. n.thread) > (ends == n.thread and 1 or 0)) then return true end
        created[n.run] = true
        taken[n.thread] = true
      end
    end
    return false
  end

  -- Returns whether runs were woken.
  local function write_operation(c, r)
    local to = c.operation
    local key = P .. 'operation:' .. to.key
    if to.kind == 'intend' then
      call('HSET', key, 'status', 'intended', 'name', to.name, 'run', c.run or '', 'thread', c.thread, 'result', '', 'evidence', '', 'by', '',
        'intended', now, 'closed', '')
      if r then call('SADD', P .. 'intents:' .. c.run, to.key) end
      return false
    end
    local found = call('HMGET', key, 'status', 'run')
    if not found[1] then return false end
    if to.kind == 'note' then
      if found[1] ~= 'completed' then call('HSET', key, 'evidence', to.payload) end
      return false
    end
    if found[1] == 'intended' then call('SREM', P .. 'intents:' .. found[2], to.key) end
    if to.kind == 'doubt' then
      call('HSET', key, 'status', 'unsure')
      return false
    end
    if to.kind == 'complete' or to.happened then
      call('HSET', key, 'status', 'completed', 'result', to.payload, 'closed', now)
    else
      call('HSET', key, 'status', 'failed', 'closed', now)
    end
    if to.kind == 'resolve' then call('HSET', key, 'by', to.by) end
    local woken = false
    for _, run in ipairs(call('SMEMBERS', P .. 'waiting:' .. to.key)) do woken = wake_run(run) or woken end
    return woken
  end

  local function is_open(operation)
    local status = call('HGET', P .. 'operation:' .. operation, 'status')
    return status == 'intended' or status == 'unsure'
  end

  local function change_run(c, t, r, first, last)
    local run, to, set = c.run, c.change, {}
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
    local was = r.status
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
      if until_ then put('until', until_) end
    end
    if to.reason then put('reason', to.reason) end
    if to.step and to.step ~= r.step then put('step', to.step) end
    if to.progress then
      if r.claims ~= '0' then put('claims', 0) end
    elseif to.uncount and r.claims ~= '0' then
      put('claims', tonumber(r.claims) - 1)
    end
    if to.tape then
      start_tape(run, c.thread, first)
      if to.input then put('input', first) end
    end
    if to.ends then put('end', last) end
    if to.due_ms then put('due', now + to.due_ms) elseif to.due then put('due', to.due) end
    if to.wait then
      wait_for(to.wait)
      if not is_open(to.wait) then put('due', now) end
    end
    if to.status == 'waiting' and r.mail ~= '0' and (r.due == '' or tonumber(r.due) > now) then put('due', now) end
    if #set > 0 then call('HSET', P .. 'run:' .. run, unpack(set)) end
    if terminal[r.status] then doubt_open(run) end

    local held = (r.status == 'running' and 1 or 0) - (was == 'running' and 1 or 0)
    if held ~= 0 then call('HINCRBY', P .. 'thread:' .. c.thread, 'held', held) end
    if terminal[r.status] and not terminal[was] then
      call('ZREM', P .. 'line:' .. c.thread, run)
    elseif terminal[was] and not terminal[r.status] then
      call('ZADD', P .. 'line:' .. c.thread, r.number, run)
    end
  end

  local function create(n)
    local key = P .. 'run:' .. n.run
    if call('EXISTS', key) == 1 then return { 0, call('HMGET', key, ${quoted(runFields)}) } end
    local t = open_thread(n.thread, n.owner, read_thread(n.thread))
    local first = append(n.thread, t.base, n.events, 1)
    local number = call('INCR', P .. 'number')
    local due = n.due_ms and now + n.due_ms or n.due
    call('HSET', key, 'epoch', t.floor, 'lease', '', 'thread', n.thread, 'base', t.base, 'mail', 0, 'claims', 0, 'step', '', 'until', '',
      'status', 'pending', 'number', number, 'lane', n.lane, 'due', due, 'wait', '', 'reason', '', 'holder', '', 'input', first, 'tape', '',
      'end', '', 'fingerprint', n.fingerprint, 'created', now, 'started', '', 'finished', '')
    call('ZADD', P .. 'runs:' .. n.thread, number, n.run)
    call('ZADD', P .. 'owner-runs:' .. n.owner, number, n.run)
    local line = P .. 'line:' .. n.thread
    call('ZADD', line, number, n.run)
    if call('ZCARD', line) == 1 then show(lane_of(t.version, n.lane, 0), number, n.run, due) end
    return { 1, first, t.floor, string.format('%.17g', due) }
  end

  local function read_run(run)
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'lease', 'thread', 'mail', 'claims', 'step', 'until', 'status', 'number', 'wait', 'due')
    return r[1] and {
      epoch = r[1], lease = r[2], thread = r[3], mail = r[4], claims = r[5], step = r[6], ['until'] = r[7], status = r[8], number = r[9],
      wait = r[10], due = r[11],
    }
  end

  local function write_state(c, t, last)
    if c.version then
      call('HSET', P .. 'thread:' .. c.thread, 'version', c.version)
      t.version = c.version
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
    for i = 1, #c.read, 1000 do call('HDEL', P .. 'inbox:' .. c.run, unpack(c.read, i, math.min(i + 999, #c.read))) end
    r.mail = tostring(call('HLEN', P .. 'inbox:' .. c.run))
    call('HSET', P .. 'run:' .. c.run, 'mail', r.mail)
  end

  -- Whether the run's place among those that can be claimed may change.
  local function is_moved(c, r)
    local to = c.change
    if to.status or to.due or to.due_ms or to.wait then return true end
    if (to.progress or to.uncount) and tonumber(r.claims) > 1 then return true end
    return c.guard == 'lease' and to.lease_ms and extended(r['until'], to.lease_ms)
  end

  local function judge_and_write(c)
    local thread = c.thread
    local t = read_thread(thread)
    local r = c.run and read_run(c.run)

    local refusal = judge_guard(c, t, r)
    if refusal then return { refusal } end
    refusal = c.operation and judge_operation(c)
    if refusal == 'conflict' then return { refusal } end
    if refusal then return { refusal, call('HMGET', P .. 'operation:' .. c.operation.key, ${quoted(operationFields)}) } end
    if c.creates and is_busy(c, r) then return { 'conflict' } end

    if #c.events > 0 or c.guard == 'thread' then t = open_thread(thread, c.owner, t) end
    local moves = t and (c.version and c.version ~= t.version or c.change and is_moved(c, r))
    local before, version = moves and head_of_line(thread), t and t.version
    local before_row = before and call('HMGET', P .. 'run:' .. before, 'lane', 'number', 'claims')
    local first, last
    if #c.events > 0 then
      first = append(thread, t.base, c.events, 1)
      last = first + #c.events / 2 - 1
    else
      last = head_of(thread, t)
      first = last
    end
    if t then write_state(c, t, last) end
    local woken = c.operation and write_operation(c, r)
    if r and c.read then read_mail(c, r) end
    if r and c.change then change_run(c, t, r, first, last) end
    if moves then
      local after = head_of_line(thread)
      local lane = before and lane_of(version, before_row[1], before_row[3])
      if before and (before ~= after or lane ~= lane_of(t.version, before_row[1], call('HGET', P .. 'run:' .. before, 'claims'))) then
        hide(lane, before_row[2], before)
      end
      if after then show_run(after, t.version) end
    end

    local created = {}
    for i, n in ipairs(c.creates or {}) do created[i] = create(n) end
    if #c.events == 0 and #created > 0 then
      last = head_of(thread, read_thread(thread))
      first = last
    end
    return { first, last, r and r.mail ~= '0' and 1 or 0, woken and 1 or 0, created }
  end

  made = { judge_and_write = judge_and_write, move = move, start_tape = start_tape }
  return made
end

local answer = { string.format('%.17g', now) }
for i, c in ipairs(changes) do
  answer[i + 1] = c[1] == 1 and plain(c) or others().judge_and_write(c)
end
${publish}
return keep(answer)
`,
)
