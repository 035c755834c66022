import { createHash } from 'node:crypto'
import { suspicionLimit } from '../../../model/run.ts'
import { absentFields, runFields } from '../rows.ts'

/** A Lua script and the hash by which the server knows it. */
export interface Script {
  readonly text: string
  readonly sha: string
}

/**
 * Puts a script together. Every script is given one key, the namespace's `life`, from which it makes the others, and begins
 * by comparing it with ARGV[1]: after a FLUSHALL it refuses to work, instead of showing an empty store.
 *
 *   read   changes nothing, and so also works when memory or disk are full
 *   write  refused as a whole, before it begins, when memory is full; once begun it ends
 *   free   a write that needs no more memory than there was: it also works when memory is full
 *
 * A script is atomic towards readers but is not rolled back when it fails: judge first, then write.
 */
export function defineScript(kind: 'read' | 'write' | 'free', body: string): Script {
  const flags = { read: ' flags=no-writes', write: '', free: ' flags=allow-oom' }[kind]
  const text = `#!lua${flags}\n${opening}${body}`
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

/** Names of fields as arguments in Lua. */
export function quoted(fields: readonly string[]): string {
  return fields.map((field) => `'${field}'`).join(', ')
}

/** Where a field stands in an answer that lists them all, counted from 1. */
export function at(fields: readonly string[], field: string): number {
  return fields.indexOf(field) + 1
}

const opening = `
local P = string.sub(KEYS[1], 1, -5)
local call = redis.call
local life = call('GET', KEYS[1])
if life ~= ARGV[1] then return redis.error_reply('HOLDFAST ' .. (life or 'none')) end
`

/**
 * The store's time: the server's, plus the offset in ARGV[2], in whole milliseconds. Durations and dates come as whole numbers, too:
 * Lua writes them exactly, and an answer cannot hold others.
 */
export const clock = `
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
`

/** How long a slot stays without a write, in ms. */
export const slotMs = 600_000

/**
 * Makes a write happen once, however often it is sent. ARGV[3] names a slot of the sender, ARGV[4] numbers the writes in it,
 * in digits of fixed width. A number that was written is answered as it was; one that comes after its successor, from a
 * connection thought dead, is refused, and so is one of a slot that is not there (scripts/slots.ts). Ends with `return keep(answer)`.
 */
export const once = `
local slot = P .. 'answer:' .. ARGV[3]
local last = call('GETRANGE', slot, 0, 15)
local kept = last == ARGV[4] and cmsgpack.unpack(string.sub(call('GET', slot), 17))
if last == '' then return redis.error_reply('HOLDFASTFORGOTTEN this slot is not there any more') end
if last > ARGV[4] then return redis.error_reply('HOLDFASTLATE a later write of this sender was already carried out') end
local function keep(answer)
  call('SET', slot, ARGV[4] .. cmsgpack.pack(answer), 'PX', ${slotMs})
  return answer
end
`

/** Tells subscribers. ARGV[5] is what they hear, or empty. */
export const publish = `
if ARGV[5] ~= '' then call('PUBLISH', P .. 'changes', ARGV[5]) end
`

/**
 * How many positions at the end of a log that ends at `head` were not written under a lease, from the thread's field `foreign`. The first
 * record of a life never was: no run can be held before it. So a thread of one run, as most are, needs no such field.
 */
export const foreignOf = `
local function foreign_of(field, base, head)
  if field then return tonumber(field) end
  return head == base + 1 and 1 or 0
end
`

/** Reads the row of a run. */
export const rowOf = `
-- Returns the values of all that scripts answer with, and a table of its fields as they are; a list of false where there is no such run.
local function row_of(run)
  local found, r = call('HGETALL', P .. 'run:' .. run), {}
  if #found == 0 then return { false } end
  for i = 1, #found, 2 do r[found[i]] = found[i + 1] end
  return { ${runFields.map(valueInLua).join(', ')} }, r
end
`

function valueInLua(field: string): string {
  return `r['${field}'] or '${absentFields[field] ?? ''}'`
}

/** Where runs are found: lanes and queues. */
export const places = `
local is_over = { completed = true, failed = true, cancelled = true }

-- A lane without its state version and kind is its group (one workflow, version and priority) and its queue.
local queues_of, groups_of = {}, {}
local function split(lane)
  local length, from = string.match(lane, '^[^:]+:[^:]+:(%d+):()')
  queues_of[lane], groups_of[lane] = string.sub(lane, from + length), string.sub(lane, 1, from + length - 1)
end
local function queue_of(lane)
  if not queues_of[lane] then split(lane) end
  return queues_of[lane]
end
local function group_of(lane)
  if not groups_of[lane] then split(lane) end
  return groups_of[lane]
end

local function count_in_queue(queue, by)
  if by ~= 0 and call('HINCRBY', P .. 'in-queues', queue, by) == 0 then
    call('HDEL', P .. 'in-queues', queue)
    call('DEL', P .. 'counts:' .. queue)
  end
end

-- Pending runs that were not due when they were created are kept with the time when they are.
local function is_delayed(due, created)
  return due == '' or tonumber(due) > tonumber(created)
end

-- Whether a run was due when it was created: if its time is to come all the same, the clock was set back (model/clock-set-back.ts).
local function was_due(due, status, created)
  return status == 'pending' and tonumber(due) <= tonumber(created)
end

local function owner_of(run)
  return call('HGET', P .. 'run:' .. run, 'owner') or ''
end

-- Suspects have lanes of their own: a claim may take only a few of them. So have runs that somebody holds: once abandoned they go first.
local function lane_of(version, lane, claims, status)
  local is_held = status == 'running'
  if claims and tonumber(claims) >= ${suspicionLimit} then return version .. (is_held and ':t:' or ':s:') .. lane end
  return version .. (is_held and ':h:' or ':-:') .. lane
end

-- The number in front makes runs of the same instant come in order of creation.
local function member_of(number, run)
  return string.format('%016d', number) .. run
end

-- Runs that are due are by owner. Those that were claimed before (b) and those that never were (n) are apart.
local function ready_key(name, owner)
  return P .. 'ready:' .. #owner .. ':' .. owner .. name
end
`

/** A lane with more owners is not parked (L4). */
const mostParkedOwners = 4

/**
 * Where a claim finds lanes, so that it looks at those alone that have something for it. Needs `places`.
 *
 *   L1  A lane that holds runs is in `sleeping:` or `apart:` of its group, at the time of its first run or earlier. A claim that finds it
 *       there too early corrects it.
 *   L2  An owner with due runs in a lane is in the lane's `turns:`. The lane is in the owner's `heads:`, at the time of the owner's first run
 *       in it exactly, and the owner in `owners:`; unless L3 or L4 holds.
 *   L3  A lane is in `parked:` of its queue when a claim has found the queue full or paused. It comes back as soon as a run of the queue
 *       runs no more, or the queue's settings are changed.
 *   L4  One with many owners would come and go with all of them: it is in `limited:` of its group instead, and a claim looks at it.
 *   L5  A group with any of these is in `groups`.
 */
export const laneIndex = `
local note_time, heads_key, add_head, note_due, drop_head, note_left, park, unpark
-- Made when it is needed: plain steps do without.
local function index_lanes()
  if note_time then return end
  function note_time(name, at)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    if call('ZADD', P .. (kind == '-' and 'sleeping:' or 'apart:') .. group, 'LT', at, name) == 1 then call('SADD', P .. 'groups', group) end
  end

  function heads_key(kind, group, owner)
    return P .. 'heads:' .. #owner .. ':' .. owner .. kind .. ':' .. group
  end

  function add_head(kind, group, owner, name, at)
    call('ZADD', heads_key(kind, group, owner), at, name)
    if call('ZADD', P .. 'owners:' .. kind .. ':' .. group, 0, owner) == 1 then call('SADD', P .. 'groups', group) end
  end

  -- A run of an owner in a lane became due, at this time.
  function note_due(name, owner, at)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    if call('ZADD', P .. 'turns:' .. name, 0, owner) == 0 then
      call('ZADD', heads_key(kind, group, owner), 'XX', 'LT', at, name)
      return
    end
    local limited, parked = P .. 'limited:' .. group, P .. 'parked:' .. queue_of(lane)
    if call('EXISTS', limited, parked) > 0 and (call('SISMEMBER', limited, name) == 1 or call('SISMEMBER', parked, name) == 1) then return end
    add_head(kind, group, owner, name, at)
  end

  function drop_head(kind, group, owner, name)
    local heads = heads_key(kind, group, owner)
    if call('ZREM', heads, name) == 0 then return false end
    if call('EXISTS', heads) == 0 then call('ZREM', P .. 'owners:' .. kind .. ':' .. group, owner) end
    return true
  end

  -- Due runs of an owner left a lane.
  function note_left(name, owner)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local group = group_of(lane)
    local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
    if first[1] then
      call('ZADD', heads_key(kind, group, owner), 'XX', first[2], name)
      return
    end
    call('ZREM', P .. 'turns:' .. name, owner)
    if not drop_head(kind, group, owner, name) and call('EXISTS', P .. 'turns:' .. name) == 0 then
      call('SREM', P .. 'limited:' .. group, name)
      call('SREM', P .. 'parked:' .. queue_of(lane), name)
    end
  end

  -- A queue is full or paused: no claim has to look at this lane of it.
  function park(group, name)
    local kind, lane = string.match(name, '^%d+:(.):(.*)$')
    local owners = call('ZRANGE', P .. 'turns:' .. name, 0, -1)
    for _, owner in ipairs(owners) do drop_head(kind, group, owner, name) end
    if #owners > ${mostParkedOwners} then
      call('SADD', P .. 'limited:' .. group, name)
      call('SADD', P .. 'groups', group)
    elseif #owners > 0 then
      call('SADD', P .. 'parked:' .. queue_of(lane), name)
    end
  end

  -- It may have room again.
  function unpark(queue)
    local names = call('SMEMBERS', P .. 'parked:' .. queue)
    if #names == 0 then return end
    call('DEL', P .. 'parked:' .. queue)
    for _, name in ipairs(names) do
      local kind, lane = string.match(name, '^%d+:(.):(.*)$')
      for _, owner in ipairs(call('ZRANGE', P .. 'turns:' .. name, 0, -1)) do
        local first = call('ZRANGE', ready_key(name, owner), 0, 0, 'WITHSCORES')
        add_head(kind, group_of(lane), owner, name, first[2])
      end
    end
  end
end
`

/** The answer of a script for what `pcall` caught, which is a text or a table, depending on the server. */
export const replyOf = `
local function reply_of(problem)
  return redis.error_reply(type(problem) == 'table' and problem.err or problem)
end
`

/**
 * Writes that the changes of a batch share, gathered so that each key is written once: `write_gathered` comes before anything reads
 * them, and before the end. Needs `places` and `laneIndex`.
 */
export const gathering = `
local gathered_adds, gathered_removals, gathered_counts, gathered_times, gathered_due

local function begin_gathering()
  gathered_adds, gathered_removals, gathered_counts, gathered_times, gathered_due = {}, {}, {}, {}, {}
end
begin_gathering()

-- A run joins a lane, and may be its first.
local function note_time_later(name, at)
  if not gathered_times[name] or at < gathered_times[name] then gathered_times[name] = at end
end

-- A run of an owner in a lane became due.
local function note_due_later(name, owner, at)
  local key = ready_key(name, owner)
  local noted = gathered_due[key]
  if not noted then
    gathered_due[key] = { name = name, owner = owner, at = at }
  elseif at < noted.at then
    noted.at = at
  end
end

local function add_later(key, score, member)
  local list = gathered_adds[key]
  if not list then
    list = {}
    gathered_adds[key] = list
  end
  local length = #list
  list[length + 1], list[length + 2] = score, member
end

local function remove_later(key, member)
  local list = gathered_removals[key]
  if not list then
    list = {}
    gathered_removals[key] = list
  end
  list[#list + 1] = member
end

local function count_later(queue, status, by)
  local sums = gathered_counts[queue]
  if not sums then
    sums = {}
    gathered_counts[queue] = sums
  end
  sums[status] = (sums[status] or 0) + by
end

local function call_in_parts(command, key, list)
  for i = 1, #list, 1000 do call(command, key, unpack(list, i, math.min(i + 999, #list))) end
end

local function write_gathered()
  if next(gathered_times) or next(gathered_due) or next(gathered_counts) then index_lanes() end
  for key, list in pairs(gathered_adds) do call_in_parts('ZADD', key, list) end
  for key, list in pairs(gathered_removals) do call_in_parts('ZREM', key, list) end
  for name, at in pairs(gathered_times) do note_time(name, string.format('%d', at)) end
  for _, due in pairs(gathered_due) do note_due(due.name, due.owner, string.format('%d', due.at)) end
  for queue, sums in pairs(gathered_counts) do
    local all = 0
    for status, by in pairs(sums) do
      all = all + by
      if by ~= 0 then call('HINCRBY', P .. 'counts:' .. queue, status, by) end
    end
    count_in_queue(queue, all)
    if (sums.running or 0) < 0 then unpark(queue) end
  end
  begin_gathering()
end
`

/** Keeps count of the unfinished runs of each queue. Needs `places` and `laneIndex`. */
export const counts = `
-- A run of a queue changes from one status to another; nil where it comes or goes.
local function count_run(lane, run, from, to, due, created)
  local queue = queue_of(lane)
  local was, is = from and not is_over[from], to and not is_over[to]
  if to == 'pending' and is_delayed(due, created) then
    call('ZADD', P .. 'delayed:' .. queue, due == '' and '+inf' or due, run)
  elseif from == 'pending' then
    call('ZREM', P .. 'delayed:' .. queue, run)
  end
  if from == to then return end
  if was then call('HINCRBY', P .. 'counts:' .. queue, from, -1) end
  if is then call('HINCRBY', P .. 'counts:' .. queue, to, 1) end
  count_in_queue(queue, (is and 1 or 0) - (was and 1 or 0))
  if from == 'running' then unpark(queue) end
end
`

/** The lines of threads and the lanes in which their heads wait to be claimed. Needs `now`, `places` and `laneIndex`. */
export const lines = `
index_lanes()
local function add_ready(name, owner, number, run, at)
  call('ZADD', ready_key(name, owner), at, member_of(number, run))
  note_due(name, owner, at)
end

local function remove_ready(name, owner, member)
  call('ZREM', ready_key(name, owner), member)
  note_left(name, owner)
end

local function hide(name, number, run)
  local member = member_of(number, run)
  if call('ZREM', P .. 'lane:' .. name, member) == 1 then return end
  local ready = call('HGET', P .. 'run:' .. run, 'ready')
  if not ready or ready == '' then return end
  local version, lane = string.match(name, '^(%d+):.:(.*)$')
  remove_ready(version .. ':' .. ready .. ':' .. lane, owner_of(run), member)
  call('HSET', P .. 'run:' .. run, 'ready', '')
end

local function show(name, number, run, at)
  if at == '' then return hide(name, number, run) end
  local version, kind, lane = string.match(name, '^(%d+):(.):(.*)$')
  if kind == '-' then
    hide(name, number, run)
    local r = call('HMGET', P .. 'run:' .. run, 'epoch', 'thread', 'status', 'created')
    if tonumber(at) <= now or was_due(at, r[3], r[4]) then
      local ready = r[1] == (call('HGET', P .. 'thread:' .. r[2], 'floor') or '0') and 'n' or 'b'
      call('HSET', P .. 'run:' .. run, 'ready', ready)
      return add_ready(version .. ':' .. ready .. ':' .. lane, owner_of(run), number, run, at)
    end
  end
  call('ZADD', P .. 'lane:' .. name, at, member_of(number, run))
  note_time(name, at)
end

-- The unfinished runs of a thread, in order. One that is the thread's only run stands in the thread's row.
local function line_of(thread, last)
  local only = call('HGET', P .. 'thread:' .. thread, 'run')
  if not only or only == '' then return call('ZRANGE', P .. 'line:' .. thread, 0, last) end
  return is_over[call('HGET', P .. 'run:' .. only, 'status')] and {} or { only }
end

local function head_of_line(thread)
  return line_of(thread, 0)[1]
end

-- All runs of a thread's life, in order.
local function runs_of(thread)
  local only = call('HGET', P .. 'thread:' .. thread, 'run')
  if not only or only == '' then return call('ZRANGE', P .. 'runs:' .. thread, 0, -1) end
  return { only }
end

-- Shows the head of a line from the time on at which it can be taken, or hides it.
local function show_run(run, version)
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'due', 'until', 'claims', 'lane', 'number')
  local at = ''
  if r[1] == 'running' then at = r[3] elseif r[1] == 'pending' or r[1] == 'waiting' then at = r[2] end
  show(lane_of(version, r[5], r[4], r[1]), r[6], run, at)
end

-- After the time of a run that is not over has changed.
local function show_if_head(run, thread)
  local t = call('HMGET', P .. 'thread:' .. thread, 'version', 'run')
  if t[2] == run or call('ZRANGE', P .. 'line:' .. thread, 0, 0)[1] == run then show_run(run, t[1] or '0') end
end

-- Takes a run out of the lane that it is in as the head of its line.
local function hide_run(run, version)
  local r = call('HMGET', P .. 'run:' .. run, 'lane', 'claims', 'status', 'number')
  hide(lane_of(version, r[1], r[2], r[3]), r[4], run)
end
`

/** Makes a waiting run due, now at the latest: what was due already keeps its place. Needs `clock` and `lines`. */
export const wakeRun = `
-- Returns whether the run is waiting.
local function wake_run(run)
  local key = P .. 'run:' .. run
  local r = call('HMGET', key, 'status', 'due', 'thread')
  if r[1] ~= 'waiting' then return false end
  if r[2] == '' or tonumber(r[2]) > now then
    call('HSET', key, 'due', now)
    show_if_head(run, r[3])
  end
  return true
end
`

/**
 * Takes a message in. A run's `mail` is the id of its latest unread message, 0 for none. Needs `clock`, `lines` and `wakeRun`.
 * The checksum is sealed with the time of arrival.
 */
export const putMessage = `
-- Returns why not, or { thread, 1 where the run is waiting }. With an id that was delivered before, nothing is put there.
local function put_message(run, checksum, entry, id)
  local r = call('HMGET', P .. 'run:' .. run, 'status', 'thread')
  if not r[1] then return 'run_not_found' end
  if id and call('SISMEMBER', P .. 'delivered:' .. run, id) == 1 then return { r[2], 0 } end
  if r[1] == 'completed' or r[1] == 'failed' or r[1] == 'cancelled' then return 'conflict' end
  if id then call('SADD', P .. 'delivered:' .. run, id) end
  local number = call('INCR', P .. 'number')
  call('HSET', P .. 'inbox:' .. run, number, (checksum + now) % 4294967296 .. ' ' .. now .. ' ' .. entry)
  call('HSET', P .. 'run:' .. run, 'mail', number)
  return { r[2], wake_run(run) and 1 or 0 }
end
`

/**
 * A run or a tape is over: an effect that it left intended only a person can close; a question nobody has to. Called only for runs that
 * ever opened something.
 */
export const settleOpen = `
local function doubt(operation)
  call('HSET', P .. 'operation:' .. operation, 'status', 'unsure')
  call('ZADD', P .. 'unsure', call('HGET', P .. 'operation:' .. operation, 'intended'), operation)
end

local function settle_open(run, at)
  for _, operation in ipairs(call('SMEMBERS', P .. 'intents:' .. run)) do
    if call('HGET', P .. 'operation:' .. operation, 'kind') == 'question' then
      call('HSET', P .. 'operation:' .. operation, 'status', 'failed', 'closed', at)
      call('ZREM', P .. 'unsure', operation)
    else
      doubt(operation)
    end
  end
  call('DEL', P .. 'intents:' .. run)
  call('HSET', P .. 'run:' .. run, 'intends', '')
end
`

export const setLabel = `
-- A label names one position of a thread and a position has one label: the latest wins.
local function set_label(thread, label, seq)
  local key = P .. 'labels:' .. thread
  local before = call('HMGET', key, 'L' .. label, 'S' .. seq)
  if before[1] then call('HDEL', key, 'S' .. before[1]) end
  if before[2] then call('HDEL', key, 'L' .. before[2]) end
  call('HSET', key, 'L' .. label, seq, 'S' .. seq, label)
end
`
