import { defineScript } from './script.ts'

/** Reads a part of a log. */
const readStretch = `
-- Positions after \`after\` up to \`to\`, which may be empty; at most \`limit\` entries, until all stretches together have about \`max_bytes\`. Where
-- \`whole\` is not empty, it names types, each between line breaks, and \`+\` for all with a patch; other entries are cut off after their headers.
-- Returns { incarnation or 0, head, first position, entries }.
local bytes = 0
local function is_whole(header, whole)
  if string.find(whole, '\\n' .. (string.match(header, '^%d+ .%["([%a_]+)"') or '') .. '\\n', 1, true) then return true end
  if not string.find(whole, '\\n+\\n', 1, true) then return false end
  -- The size of the patch comes before the bytes of the checkpoint and, except in entries of version 1, a checksum.
  local size = string.match(header, '^%d+ [C%-]') and ',([^,]+),[^,]+%]\\n$' or ',([^,]+),[^,]+,%d+%]\\n$'
  return string.match(header, size) ~= 'null'
end
local function read_stretch(thread, after, to, limit, max_bytes, whole)
  local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'deleted')
  if not t[1] or (t[4] or '') ~= '' then return { 0, 0, 0, {} } end
  local log, base = P .. 'log:' .. thread, tonumber(t[2] or 0)
  local head = base + call('LLEN', log)
  local first = math.max(base, tonumber(after)) + 1
  local last = to == '' and head or math.min(head, tonumber(to))
  local entries, seq = {}, first
  while seq <= last and #entries < limit and bytes < max_bytes do
    local size = math.min(256, limit - #entries, last - seq + 1)
    for _, entry in ipairs(call('LRANGE', log, seq - base - 1, seq - base + size - 2)) do
      if whole ~= '' then
        local header = string.sub(entry, 1, string.find(entry, '\\n', 1, true))
        if not is_whole(header, whole) then entry = header end
      end
      entries[#entries + 1] = entry
      bytes = bytes + #entry
    end
    seq = seq + size
  end
  return { tonumber(t[3] or 1), head, first, entries }
end
`

/**
 * A stretch of a log without payloads and patches. ARGV: 1 namespace id, 2 thread, 3 after this position, 4 up to this one or empty, 5 at
 * most so many, 6 at most about so many bytes. Answers { incarnation or 0, head, first position, entries, labels }.
 */
export const readCheckpointsScript = defineScript(
  'read',
  `
${readStretch}
local answer = read_stretch(ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), '\\n')
answer[5] = answer[1] == 0 and {} or call('HGETALL', P .. 'labels:' .. ARGV[2])
return answer
`,
)

/**
 * Stretches of many logs. ARGV: 1 namespace id, 2 at most about so many bytes, then for each log: thread, after this position, up to this one
 * or empty, at most so many, and the types whose entries are sent whole, each between line breaks, and \`+\` for those with a patch, or empty for all. Answers for each
 * { incarnation or 0, head, first position, entries }, and stops after the log that exceeded the size.
 */
export const readLogsScript = defineScript(
  'read',
  `
${readStretch}
local max_bytes, answer = tonumber(ARGV[2]), {}
for i = 3, #ARGV, 5 do
  if bytes >= max_bytes then break end
  answer[#answer + 1] = read_stretch(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), max_bytes, ARGV[i + 4])
end
return answer
`,
)

/**
 * Single records. ARGV: 1 namespace id, then thread, position, thread, position, … Answers their entries, empty for one that does not exist. If they are
 * large, only the first few.
 */
export const readRecordsScript = defineScript(
  'read',
  `
local answer, bytes = {}, 0
for i = 2, #ARGV, 2 do
  if bytes > 4194304 then break end
  local t = call('HMGET', P .. 'thread:' .. ARGV[i], 'number', 'base', 'deleted')
  local index = t[1] and (t[3] or '') == '' and ARGV[i + 1] - (t[2] or 0) - 1
  answer[i / 2] = index and index >= 0 and call('LINDEX', P .. 'log:' .. ARGV[i], index) or ''
  bytes = bytes + #answer[i / 2]
end
return answer
`,
)

/** ARGV: 1 namespace id, 2 thread, 3 label. Answers its position and the entry there, or nothing. */
export const readLabelScript = defineScript(
  'read',
  `
local seq = call('HGET', P .. 'labels:' .. ARGV[2], 'L' .. ARGV[3])
if not seq then return {} end
local entry = call('LINDEX', P .. 'log:' .. ARGV[2], seq - (call('HGET', P .. 'thread:' .. ARGV[2], 'base') or 0) - 1)
return { tonumber(seq), string.sub(entry, 1, string.find(entry, '\\n', 1, true)) }
`,
)
