import { runFields, threadFields } from '../../rows.ts'
import { at, quoted } from '../script.ts'

/** The answer about one claimed run. Needs `queueRoom`. */
export const describeRun = `
local function describe(run, row, holder, until_)
  local thread = row[${at(runFields, 'thread')}]
  local log, place = P .. 'log:' .. thread, row[${at(runFields, 'input')}] - row[${at(runFields, 'base')}] - 1
  for i, value in ipairs(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)})) do row[${runFields.length} + i] = value end
  return { run, cjson.encode(row), call('LLEN', log), call('LINDEX', log, place) or '', holder, until_, room_of(queue_of(row[${at(runFields, 'lane')}])).is_limited }
end
`
