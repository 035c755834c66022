import { threadFields } from '../rows.ts'
import { defineScript, quoted } from './script.ts'

/**
 * Threads in order of creation. ARGV: 1 namespace id, 2 the index (`owner-threads:…` or `threads`), 3 above this number, 4 at most so many.
 * Answers thread, number, row, length of log, …
 */
export const listThreadsScript = defineScript(
  'read',
  `
local answer = {}
local found = call('ZRANGEBYSCORE', P .. ARGV[2], '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
for i = 1, #found, 2 do
  local thread = found[i]
  answer[2 * i - 1] = thread
  answer[2 * i] = found[i + 1]
  answer[2 * i + 1] = cjson.encode(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)}))
  answer[2 * i + 2] = call('LLEN', P .. 'log:' .. thread)
end
return answer
`,
)
