import { operationFields, threadFields } from '../rows.ts'
import { runRow } from './parts/run-row.ts'
import { clock, defineScript, quoted } from './script.ts'

/** ARGV: 1 namespace id, then runs. Answers their rows. */
export const readRunsScript = defineScript(
  'read',
  `
${runRow}
local answer = {}
for i = 2, #ARGV do answer[i - 1] = cjson.encode((row_of(ARGV[i]))) end
return answer
`,
)

/** ARGV: 1 namespace id, 2 thread. Answers { its row, length of its log }. */
export const readThreadScript = defineScript(
  'read',
  `return { cjson.encode(call('HMGET', P .. 'thread:' .. ARGV[2], ${quoted(threadFields)})), call('LLEN', P .. 'log:' .. ARGV[2]) }`,
)

/** ARGV: 1 namespace id, 2 operation. Answers its row. */
export const readOperationScript = defineScript(
  'read',
  `return call('HMGET', P .. 'operation:' .. ARGV[2], ${quoted(operationFields)})`,
)

/** Unsure operations. ARGV: 1 namespace id, 2 opened then or later, 3 without so many, 4 at most so many. Answers { operation, row, … }. */
export const listUnsureScript = defineScript(
  'read',
  `
local answer = {}
for _, operation in ipairs(call('ZRANGEBYSCORE', P .. 'unsure', ARGV[2], '+inf', 'LIMIT', ARGV[3], ARGV[4])) do
  answer[#answer + 1] = operation
  answer[#answer + 1] = call('HMGET', P .. 'operation:' .. operation, ${quoted(operationFields)})
end
return answer
`,
)

/** ARGV: 1 namespace id, 2 thread, 3 position. Answers the latest snapshot at or before it, or nothing. */
export const readSnapshotScript = defineScript(
  'read',
  `return call('ZREVRANGEBYSCORE', P .. 'snapshots:' .. ARGV[2], ARGV[3], '-inf', 'LIMIT', 0, 1)[1]`,
)

/** ARGV: 1 namespace id, 2 clock offset. Answers the time. A script, so that a cluster asks the node of the namespace. */
export const nowScript = defineScript('read', `${clock} return now`)
