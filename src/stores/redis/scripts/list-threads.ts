import { threadFields } from '../rows.ts'
import { defineScript, quoted } from './script.ts'

/**
 * Threads in order of creation. ARGV: 1 namespace id, 2 the index (`owner-threads:…` or `threads`), 3 above this number, 4 at most so many.
 * Answers thread, row, length of log, …
 */
export const listThreadsScript = defineScript(
  'read',
  `
local answer = {}
for i, thread in ipairs(call('ZRANGEBYSCORE', P .. ARGV[2], '(' .. ARGV[3], '+inf', 'LIMIT', 0, ARGV[4])) do
  answer[3 * i - 2] = thread
  answer[3 * i - 1] = cjson.encode(call('HMGET', P .. 'thread:' .. thread, ${quoted(threadFields)}))
  answer[3 * i] = call('LLEN', P .. 'log:' .. thread)
end
return answer
`,
)
