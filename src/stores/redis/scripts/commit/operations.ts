/** Judges and writes what a change does to an operation. Needs `wakeRun` and `closeOperations`. */
export const operations = `
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

-- \`r\` is the run of the change, nil if it has none.
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
  -- A question stays open in doubt: it is unsure from the beginning.
  local is_left_open = to.kind == 'doubt' and found[3] == 'question'
  if not is_left_open and (found[1] == 'intended' or found[3] == 'question') then call('SREM', P .. 'intents:' .. found[2], to.key) end
  if found[1] == 'unsure' then call('ZREM', P .. 'unsure', to.key) end
  if to.kind == 'doubt' then return mark_unsure(to.key) end
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
`
