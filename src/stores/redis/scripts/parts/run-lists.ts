import { internalPrefix } from '../../../../model/internal.ts'
import { runStatuses } from '../../../../model/run.ts'
import { quoted } from '../script.ts'

/**
 * The indexes of lists of runs. Each run is in the bucket of its owner, status, workflow and queue; a list merges the buckets that its
 * filters name. Runs of users' workflows are also in one index per owner, and runs that a label points to in one index per label. All are
 * sorted by time of creation, then by number. Needs `laneNames`.
 */
export const runLists = `
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

-- A run changes from one status to another. \`from\` is nil for a new run, \`to\` is nil for a deleted one.
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

-- After runs were deleted: forgets the names of buckets that became empty.
local function forget_buckets(owner, lane)
  for _, status in ipairs({ ${quoted(runStatuses)} }) do
    local bucket = status .. ':' .. names_in(lane)
    if call('EXISTS', bucket_key(owner, bucket)) == 0 then call('SREM', P .. 'buckets:' .. owner, bucket) end
  end
end
`

/** The same, collected over a batch. Needs `gatheredWrites` and `runLists`. */
export const gatheredRunLists = `
-- The buckets of one owner and lane, by status. Consecutive changes nearly always share them, so the last ones are remembered.
local buckets = {}
local function buckets_of(owner, lane)
  if buckets.owner ~= owner or buckets.lane ~= lane then
    local names = names_in(lane)
    buckets = { owner = owner, lane = lane, names = names, listed = not is_internal(names) and P .. 'listed:' .. owner }
  end
  return buckets
end

-- \`member\` is what \`member_of\` returns.
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
