-- Spike for decision 0001: one batch of changes, one EVALSHA, on plain Redis 7.
--
--   KEYS[1]  the namespace with its hash tag, e.g. `holdfast:{default}:`; every key below starts with it, so all share one slot
--   ARGV[1]  clock offset in ms      ARGV[2]  JSON array of changes      ARGV[3…]  bodies: log entries, snapshots, results
--
-- Answer: { now, outcome, outcome, … }, in order. outcome = { 'ok', first, last, has mail, { created … } } or { refusal, operation as HGETALL }
--
-- A script is atomic towards readers but is NOT rolled back when it fails: each change is judged completely before its first
-- write, and nothing after that can be refused. Redis checks memory (noeviction) and disk before a script's first write only,
-- so a script that began to write ends. In the AOF its writes are one MULTI … EXEC; a torn tail is dropped whole.
--
-- With appendfsync always, Redis fsyncs once per turn of its event loop, before any reply of that turn leaves: the group commit of
-- several processes comes for free, and a reader is never told what is not on disk.
--
-- Keys. An (owner, id) pair is written `<bytes of owner>:<owner><id>`, which is injective.
--   t<thread>  hash    head base incarnation stateVersion createdAt deletedAt epochFloor lines
--   l<thread>  list    log; entry n is position base + n: gapless by its very shape, a range is one LRANGE
--   q<thread>  zset    unfinished runs by order of creation; the first is the head of the line
--   s<thread>  zset    snapshots by position      b<thread>  hash  label → position
--   r<run>     hash    the run's row              i<run>     hash  inbox: id → message
--   o<op>      hash    operation                  w<op>      set   runs that wait for it
--   p<run>     set     operations that the run has intended and not closed
--   lanes      set     of `priority <TAB> version <TAB> workflow <TAB> queue`
--   z<lane>    zset    heads of lines: by due time, or by the end of the lease while running. All a claim reads.
--
-- An entry of the log is `<sealed checksum>:<flags><body>`; the body is packed by the client and never read here.

local P = KEYS[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
local changes = cjson.decode(ARGV[2])
local terminal = { completed = true, failed = true, cancelled = true }

-- Numbers: redis.call writes a Lua number with 17 digits, `..` with 14. Times, positions and checksums are exact in both.
local function pair(owner, id) return #owner .. ':' .. owner .. id end

-- (base + seq) mod 2^32, exact in doubles.
local function seal(body, crc, seq) return (crc + seq) % 4294967296 .. ':' .. ARGV[body] end

-- Shows the head of a line to claims, or hides it. `wake` nil: only something from outside can wake it.
local function show(lane, run, wake)
  if wake then call('ZADD', P .. 'z' .. lane, wake, run) else call('ZREM', P .. 'z' .. lane, run) end
end

-- Gives positions and appends. Returns the first one.
local function append(thread, events)
  local last = call('HINCRBY', P .. 't' .. thread, 'head', #events)
  local first = last - #events + 1
  if #events == 2 then                                        -- step_started and its result: the usual commit
    local a, b = events[1], events[2]
    call('RPUSH', P .. 'l' .. thread, seal(a[1], a[2], first), seal(b[1], b[2], last))
    return first
  end
  local entries = {}
  for i, e in ipairs(events) do entries[i] = seal(e[1], e[2], first + i - 1) end
  for i = 1, #entries, 1000 do call('RPUSH', P .. 'l' .. thread, unpack(entries, i, math.min(i + 999, #entries))) end   -- unpack has a limit
  return first
end

-- Wakes whoever waits for an operation.
local function wake(op)
  for _, run in ipairs(call('SMEMBERS', P .. 'w' .. op)) do
    local key = P .. 'r' .. run
    local w = call('HMGET', key, 'status', 'isNext', 'lane')
    if w[1] == 'waiting' then
      call('HSET', key, 'dueAt', now)
      call('HDEL', key, 'waitKey')
      if w[2] == '1' then show(w[3], run, now) end
    end
  end
  call('DEL', P .. 'w' .. op)
end

-- Judges an operation. Returns a refusal, or nil.
local function judge_operation(op, key, run)
  local found = call('HMGET', P .. 'o' .. key, 'status', 'run')
  local status = found[1]
  if op.kind == 'intend' then
    if status and status ~= 'failed' and status ~= 'undone' then return 'operation_taken' end
  elseif op.kind == 'resolve' then
    if status ~= 'unsure' then return 'already_answered' end
  elseif op.kind ~= 'note' then
    if found[2] ~= run or (status ~= 'intended' and status ~= 'unsure') then return 'conflict' end
  end
end

local function write_operation(op, key, run, thread)
  local k = P .. 'o' .. key
  if op.kind == 'intend' then
    call('DEL', k)
    call('HSET', k, 'name', op.name, 'run', run, 'thread', thread, 'status', 'intended', 'intendedAt', now)
    call('SADD', P .. 'p' .. run, key)
  elseif op.kind == 'note' then
    if call('HGET', k, 'status') ~= 'completed' then call('HSET', k, 'evidence', ARGV[op.body]) end
  else
    local status = op.kind == 'complete' and 'completed' or op.kind == 'fail' and 'failed' or op.kind == 'doubt' and 'unsure'
      or (op.happened and 'completed' or 'failed')
    call('HSET', k, 'status', status)
    call('SREM', P .. 'p' .. call('HGET', k, 'run'), key)
    if op.body then call('HSET', k, 'result', ARGV[op.body]) end
    if op.by then call('HSET', k, 'resolvedBy', op.by) end
    if op.kind ~= 'doubt' then call('HSET', k, 'closedAt', now); wake(key) end
  end
end

local function create(n)
  local run, thread = pair(n.owner, n.id), pair(n.owner, n.thread)
  local rk, tk = P .. 'r' .. run, P .. 't' .. thread
  if call('EXISTS', rk) == 1 then return { 0, call('HGETALL', rk) } end
  local t = call('HMGET', tk, 'head', 'deletedAt', 'epochFloor')
  if not t[1] then
    call('HSET', tk, 'head', 0, 'base', 0, 'incarnation', 1, 'stateVersion', 0, 'createdAt', now)
  elseif t[2] then                                            -- a new life: positions and epochs go on
    call('HDEL', tk, 'deletedAt')
    call('HINCRBY', tk, 'incarnation', 1)
    call('HSET', tk, 'base', t[1], 'stateVersion', 0, 'createdAt', now)
  end
  local first = append(thread, { n.event })
  local due = n.dueAt or now + n.dueMs
  local is_next = call('ZCARD', P .. 'q' .. thread) == 0
  call('ZADD', P .. 'q' .. thread, call('HINCRBY', tk, 'lines', 1), run)
  call('HSET', rk, 'owner', n.owner, 'id', n.id, 'thread', thread, 'threadId', n.thread, 'lane', n.lane, 'status', 'pending', 'fingerprint', n.fingerprint,
    'epoch', t[3] or 0, 'claims', 0, 'mail', 0, 'dueAt', due, 'isNext', is_next and 1 or 0, 'line', call('HGET', tk, 'lines'),
    'inputSeq', first, 'createdAt', now)
  call('SADD', P .. 'lanes', n.lane)
  if is_next then show(n.lane, run, due) end
  return { 1, first }
end

-- The step of nearly every run: a lease guard, events, and of the run only its step, its progress and its lease. Marked by the client.
local function plain(c)
  local run, thread = pair(c.owner, c.run), pair(c.owner, c.thread)
  local rk = P .. 'r' .. run
  local r = call('HMGET', rk, 'epoch', 'leaseId', 'mail', 'claims', 'step', 'leaseUntil', 'lane', 'thread')
  if r[2] ~= c.lease or tonumber(r[1]) ~= c.epoch or r[8] ~= thread then return { 'lease_lost' } end
  local first = append(thread, c.events)
  if c.step then call('HSET', rk, 'step', c.step) elseif c.clearsStep and r[5] then call('HDEL', rk, 'step') end
  if c.progress and r[4] ~= '0' then call('HSET', rk, 'claims', 0) end
  if c.leaseMs and tonumber(r[6]) < now + c.leaseMs * 2 / 3 then       -- lazily, when a third of the lease is gone
    call('HSET', rk, 'leaseUntil', now + c.leaseMs)
    show(r[7], run, now + c.leaseMs)
  end
  return { 'ok', first, first + #c.events - 1, r[3] == '0' and 0 or 1, {} }
end

local function judge_and_write(c)
  local thread, run = pair(c.owner, c.thread), c.run and pair(c.owner, c.run)
  local tk, rk = P .. 't' .. thread, run and P .. 'r' .. run
  local g, r = c.guard, nil

  -- judge
  if run then r = call('HMGET', rk, 'epoch', 'leaseId', 'status', 'mail', 'lane', 'leaseUntil', 'isNext', 'line', 'dueAt', 'claims', 'startedAt', 'thread') end
  if r and r[12] ~= thread then r = { false } end
  if g == 'lease' then
    if tonumber(r[1] or -1) ~= c.epoch or r[2] ~= c.lease then return { 'lease_lost' } end
  elseif g == 'run' then
    if not r[1] then return { 'run_not_found' } end
    if tonumber(r[1]) ~= c.epoch or r[3] ~= c.status0 then return { 'conflict' } end
    if c.undisturbed and tonumber(call('HGET', tk, 'lastStarted') or 0) > tonumber(r[8]) then return { 'conflict' } end
  elseif g == 'thread' then
    local head = call('ZRANGE', P .. 'q' .. thread, 0, 0)[1]
    if call('HEXISTS', tk, 'deletedAt') == 1 then return { 'thread_deleted' } end
    if tonumber(call('HGET', tk, 'head') or 0) ~= c.head or (head and call('HGET', P .. 'r' .. head, 'status') == 'running') then return { 'conflict' } end
  end
  if g == 'none' and #c.events > 0 then                        -- a late writer must not bring back what was deleted
    if call('HEXISTS', tk, 'deletedAt') == 1 then return { 'thread_deleted' } end
    if run and not r[1] then return { 'run_not_found' } end
  end
  local busy = {}
  for _, n in ipairs(c.creates or {}) do
    local k = pair(n.owner, n.thread)
    if call('EXISTS', P .. 'r' .. pair(n.owner, n.id)) == 0 then
      local ends = k == thread and c.change and terminal[c.change.status] and call('ZSCORE', P .. 'q' .. k, run) and 1 or 0   -- makes room
      if n.reject and (busy[k] or call('ZCARD', P .. 'q' .. k) > ends) then return { 'conflict' } end
      busy[k] = true
    end
  end
  local op = c.op and pair(c.owner, c.op.key)
  if op then
    local refusal = judge_operation(c.op, op, run)
    if refusal then return { refusal, refusal ~= 'conflict' and call('HGETALL', P .. 'o' .. op) or nil } end
  end

  -- write
  local first, last
  if (g == 'thread' or #c.events > 0) and call('EXISTS', tk) == 0 then          -- an edit opens a thread
    call('HSET', tk, 'head', 0, 'base', 0, 'incarnation', 1, 'stateVersion', 0, 'createdAt', now)
  end
  if #c.events > 0 then
    first = append(thread, c.events)
    last = first + #c.events - 1
  else
    last = tonumber(call('HGET', tk, 'head') or 0)
    first = last
  end
  if c.stateVersion then call('HSET', tk, 'stateVersion', c.stateVersion) end
  if c.snapshot then call('ZADD', P .. 's' .. thread, last, seal(c.snapshot[1], c.snapshot[2], last)) end
  if c.label then call('HSET', P .. 'b' .. thread, c.label, last) end
  if op then write_operation(c.op, op, run, thread) end

  local mail = r and tonumber(r[4] or 0) or 0
  if c.read then
    mail = mail - call('HDEL', P .. 'i' .. run, unpack(c.read))
    call('HSET', rk, 'mail', mail)
  end
  local u = c.change
  if u then
    local set, del = {}, {}
    local function put(k, v) set[#set + 1] = k; set[#set + 1] = v end
    local status = u.status or r[3]
    local due = r[9]
    if u.step then put('step', u.step) elseif u.clearsStep then del[#del + 1] = 'step' end
    if u.progress then if r[10] ~= '0' then put('claims', 0) end
    elseif u.uncount then put('claims', math.max(tonumber(r[10]) - 1, 0)) end
    if u.reason then put('reason', u.reason) elseif u.clearsReason then del[#del + 1] = 'reason' end
    if u.due then
      due = u.due == 'in' and now + u.dueMs or u.due == 'at' and u.dueMs or nil
    end
    if u.waitKey then
      local k = pair(c.owner, u.waitKey)
      local s = call('HGET', P .. 'o' .. k, 'status')
      if s == 'intended' or s == 'unsure' then call('SADD', P .. 'w' .. k, run); put('waitKey', u.waitKey) else due = now end
    end
    local has_mail = u.status == 'waiting' and mail > 0         -- no message is overlooked
    if has_mail then due = math.min(tonumber(due or now), now) end
    if u.due or u.waitKey or has_mail then if due then put('dueAt', due) else del[#del + 1] = 'dueAt' end end
    if u.tape then put('tapeSeq', first); if not r[11] then put('startedAt', now) end end
    if u.input then put('inputSeq', first) end
    if u.ends then put('endSeq', last) end
    if u.status then
      put('status', status)
      if status ~= 'running' then del[#del + 1] = 'leaseId'; del[#del + 1] = 'leaseUntil'; del[#del + 1] = 'leaseHolder' end
      if terminal[status] then put('finishedAt', now) elseif terminal[r[3]] then del[#del + 1] = 'finishedAt' end
      -- the line of the thread: who stands at its head is shown to claims
      local q = P .. 'q' .. thread
      if terminal[status] and not terminal[r[3]] then
        call('ZREM', q, run)
        put('isNext', 0)
        show(r[5], run, nil)
        for _, left in ipairs(call('SMEMBERS', P .. 'p' .. run)) do call('HSET', P .. 'o' .. left, 'status', 'unsure') end   -- nobody else can close them
        call('DEL', P .. 'p' .. run)
      elseif not terminal[status] and terminal[r[3]] then
        call('ZADD', q, r[8], run)
      end
      local head = call('ZRANGE', q, 0, 0)[1]
      if head == run then
        put('isNext', 1)
        show(r[5], run, (status == 'pending' or status == 'waiting') and due or status == 'running' and r[6] or nil)
        local behind = call('ZRANGE', q, 1, 1)[1]
        if behind and terminal[r[3]] then
          call('HSET', P .. 'r' .. behind, 'isNext', 0)
          show(call('HGET', P .. 'r' .. behind, 'lane'), behind, nil)
        end
      elseif head then
        local h = call('HMGET', P .. 'r' .. head, 'status', 'dueAt', 'lane', 'isNext')
        if h[4] ~= '1' then
          call('HSET', P .. 'r' .. head, 'isNext', 1)
          show(h[3], head, (h[1] == 'pending' or h[1] == 'waiting') and h[2] or nil)
        end
      end
    end
    -- lazily, when a third of the lease is gone
    if u.leaseMs and status == 'running' and tonumber(r[6] or 0) < now + u.leaseMs * 2 / 3 then
      put('leaseUntil', now + u.leaseMs)
      show(r[5], run, now + u.leaseMs)
    end
    if #set > 0 then call('HSET', rk, unpack(set)) end
    if #del > 0 then call('HDEL', rk, unpack(del)) end
  end
  local created = {}
  for i, n in ipairs(c.creates or {}) do created[i] = create(n) end
  return { 'ok', first, last, mail > 0 and 1 or 0, created }
end

local answer = { now }
for i, c in ipairs(changes) do answer[i + 1] = c.plain and plain(c) or judge_and_write(c) end
return answer
