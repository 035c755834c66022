import { internalPrefix } from '../../../model/internal.ts'
import { runStatuses } from '../../../model/run.ts'
import { quoted } from './script.ts'

/**
 * Where lists find runs. Each run is in the bucket of its owner, status, workflow and queue; a list merges the buckets that its filters name.
 * Those that are not Holdfast's own are also in one index of their owner, and those that a label points to in one of the label. All are by the
 * time of creation, and at one instant by number. Needs `places`.
 */
export const listing = `
local function names_in(lane)
  return (string.match(lane, '^[^:]+:[^:]+:(.*)$'))
end

local function bucket_key(owner, bucket)
  return P .. 'bucket:' .. #owner .. ':' .. owner .. bucket
end

local function labelled_key(owner, label)
  return P .. 'labelled:' .. #owner .. ':' .. owner .. label
end

local function is_internal(names)
  local length, from = string.match(names, '^(%d+):()')
  return tonumber(length) >= ${internalPrefix.length} and string.sub(names, from, from + ${internalPrefix.length - 1}) == '${internalPrefix}'
end

-- A run comes (from is nil), changes from one status to another, or goes (to is nil).
local function list_run(owner, lane, number, run, created, from, to)
  if from == to then return end
  local names, member = names_in(lane), member_of(number, run)
  if from then call('ZREM', bucket_key(owner, from .. ':' .. names), member) end
  if to and call('ZADD', bucket_key(owner, to .. ':' .. names), created, member) == 1 then
    call('SADD', P .. 'buckets:' .. owner, to .. ':' .. names)
  end
  if from and to or is_internal(names) then return end
  if to then call('ZADD', P .. 'listed:' .. owner, created, member) else call('ZREM', P .. 'listed:' .. owner, member) end
end

-- After runs went: names of buckets that nobody is in are forgotten.
local function forget_buckets(owner, lane)
  for _, status in ipairs({ ${quoted(runStatuses)} }) do
    local bucket = status .. ':' .. names_in(lane)
    if call('EXISTS', bucket_key(owner, bucket)) == 0 then call('SREM', P .. 'buckets:' .. owner, bucket) end
  end
end
`

/** The same for changes of a batch. Needs `gathering` and `listing`. */
export const gatheredListing = `
-- The buckets of one owner and lane, by status: nearly always those of the change before.
local buckets = {}
local function buckets_of(owner, lane)
  if buckets.owner ~= owner or buckets.lane ~= lane then
    local names = names_in(lane)
    buckets = { owner = owner, lane = lane, names = names, listed = not is_internal(names) and P .. 'listed:' .. owner }
  end
  return buckets
end

-- \`member\` is the run as indexes by number have it.
local noted_buckets = {}
local function list_later(owner, lane, member, created, from, to)
  local of = buckets_of(owner, lane)
  if from then
    of[from] = of[from] or bucket_key(owner, from .. ':' .. of.names)
    remove_later(of[from], member)
  elseif of.listed then
    add_later(of.listed, created, member)
  end
  local bucket = of[to] or bucket_key(owner, to .. ':' .. of.names)
  of[to] = bucket
  if not noted_buckets[bucket] then
    noted_buckets[bucket] = true
    call('SADD', P .. 'buckets:' .. owner, to .. ':' .. of.names)
  end
  add_later(bucket, created, member)
end
`

/** Labels. A label names one position of a thread and a position has one label: the latest wins. Needs `listing`. */
export const setLabel = `
local function drop_label(key, label)
  local found = call('HMGET', key, 'L' .. label, 'R' .. label)
  if not found[1] then return end
  call('HDEL', key, 'L' .. label, 'S' .. found[1], 'R' .. label)
  if (found[2] or '') == '' then return end
  local r = call('HMGET', P .. 'run:' .. found[2], 'number', 'owner')
  if r[1] then call('ZREM', labelled_key(r[2] or '', label), member_of(r[1], found[2])) end
end

-- \`run\` is that of the record at the position, nil where it has none.
local function set_label(thread, label, seq, run)
  local key = P .. 'labels:' .. thread
  drop_label(key, label)
  local there = call('HGET', key, 'S' .. seq)
  if there then drop_label(key, there) end
  call('HSET', key, 'L' .. label, seq, 'S' .. seq, label, 'R' .. label, run or '')
  local r = run and call('HMGET', P .. 'run:' .. run, 'number', 'owner', 'created')
  if r and r[1] then call('ZADD', labelled_key(r[2] or '', label), r[3], member_of(r[1], run)) end
end

-- The run of a record, nil where it has none. Pairs of a thread and its runs begin alike.
local function run_of_entry(entry, thread, owner)
  local prefix = string.match(thread, '^%d+:') .. owner
  local run = cjson.decode(string.match(entry, '^%d+ .([^\\n]*)'))[2]
  if run == true then return thread end
  return type(run) == 'string' and prefix .. run or nil
end
`
