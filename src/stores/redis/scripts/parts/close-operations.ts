/**
 * A run or a tape has ended. Whether an effect that it left intended has happened is not known, so a person has to decide; a question
 * that it left open no longer needs an answer. Called only for runs that ever opened an operation.
 */
export const closeOperations = `
local function mark_unsure(operation)
  call('HSET', P .. 'operation:' .. operation, 'status', 'unsure')
  call('ZADD', P .. 'unsure', call('HGET', P .. 'operation:' .. operation, 'intended'), operation)
end

local function close_open_operations(run, at)
  for _, operation in ipairs(call('SMEMBERS', P .. 'intents:' .. run)) do
    if call('HGET', P .. 'operation:' .. operation, 'kind') == 'question' then
      call('HSET', P .. 'operation:' .. operation, 'status', 'failed', 'closed', at)
      call('ZREM', P .. 'unsure', operation)
    else
      mark_unsure(operation)
    end
  end
  call('DEL', P .. 'intents:' .. run)
  call('HSET', P .. 'run:' .. run, 'intends', '')
end
`
