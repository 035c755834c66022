/**
 * The start of one run on a new thread, without a guard, as nearly every start is. Any other goes to `apply_change`. Needs `gatheredWrites`
 * and `gatheredRunLists`.
 */
export const plainStart = `
-- What a plain step reads comes first, because Redis searches a small hash from its beginning. Fields with their defaults are left out.
local function write_run(key, thread, owner, lane, fingerprint, number, due, is_ready, epoch, base, input)
  call('HSET', key, 'epoch', epoch, 'thread', thread, 'status', 'pending', 'number', number, 'lane', lane, 'due', due, 'ready', is_ready and 'n' or '',
    'fingerprint', fingerprint, 'created', now_text)
  if owner ~= '' then call('HSET', key, 'owner', owner) end
  if input ~= '1' then call('HSET', key, 'base', base, 'input', input) end
end

local load_general
-- How many more runs each queue accepts, and the last number given to a thread or run in this batch.
local rooms, last_number = {}
-- The keys for one owner and lane. Consecutive starts nearly always share them, so the last ones are remembered.
local keys = {}

local function keys_for(owner, lane)
  if keys.owner == owner and keys.lane == lane then return keys end
  keys = {
    owner = owner, lane = lane, queue = queue_of(lane), threads = P .. 'owner-threads:' .. owner,
    due = '0:n:' .. lane, ready = ready_key('0:n:' .. lane, owner), sleeping = P .. 'lane:0:-:' .. lane,
  }
  return keys
end

-- Writes what the batch has collected. Whatever reads shared keys has to call it first.
local function flush()
  write_gathered()
  if last_number then call('SET', P .. 'number', string.format('%d', last_number)) end
  rooms, last_number = {}, nil
end

-- { 2, run, thread, owner, lane, fingerprint, due ms or false, due or false, whether it must not wait behind others, checksum, entry }
-- Returns when the run is due.
local function plain_start(c)
  local run, thread, owner, lane = c[2], c[3], c[4], c[5]
  local run_key, thread_key = P .. 'run:' .. run, P .. 'thread:' .. thread
  if call('EXISTS', run_key, thread_key) > 0 then
    return load_general().apply_change({
      thread = thread, owner = owner, guard = 'none', events = {}, rejects = c[9],
      creates = { { run = run, thread = thread, owner = owner, lane = lane, fingerprint = c[6], due_ms = c[7], due = c[8], rejects = c[9], events = copy_from(10, c) } },
    })
  end
  local to = keys_for(owner, lane)
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
`
