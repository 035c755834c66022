/** Labels of checkpoints. A label names one position of a thread, and a position has one label: the latest wins. Needs `runLists`. */
export const labels = `
local function drop_label(key, label)
  local found = call('HMGET', key, 'L' .. label, 'R' .. label)
  if not found[1] then return end
  call('HDEL', key, 'L' .. label, 'S' .. found[1], 'R' .. label)
  if (found[2] or '') == '' then return end
  local r = call('HMGET', P .. 'run:' .. found[2], 'number', 'owner')
  if r[1] then call('ZREM', labelled_key(r[2] or '', label), member_of(r[1], found[2])) end
end

-- \`run\` is the run of the record at that position, nil if it has none.
local function set_label(thread, label, seq, run)
  local key = P .. 'labels:' .. thread
  drop_label(key, label)
  local there = call('HGET', key, 'S' .. seq)
  if there then drop_label(key, there) end
  call('HSET', key, 'L' .. label, seq, 'S' .. seq, label, 'R' .. label, run or '')
  local r = run and call('HMGET', P .. 'run:' .. run, 'number', 'owner', 'created')
  if r and r[1] then call('ZADD', labelled_key(r[2] or '', label), r[3], member_of(r[1], run)) end
end

-- The run of a record, nil if it has none. The pair of a run begins like the pair of its thread: both have the same owner.
local function run_of_entry(entry, thread, owner)
  local prefix = string.match(thread, '^%d+:') .. owner
  local run = cjson.decode(string.match(entry, '^%d+ .([^\\n]*)'))[2]
  if run == true then return thread end
  return type(run) == 'string' and prefix .. run or nil
end
`
