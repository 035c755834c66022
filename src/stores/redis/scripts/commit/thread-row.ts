/** The row of a thread, and what its events change there. Needs `appendEvents` and `foreignOf`. */
export const threadRow = `
local function read_thread(thread)
  local t = call('HMGET', P .. 'thread:' .. thread, 'number', 'base', 'life', 'version', 'deleted', 'floor', 'head', 'run', 'foreign')
  return t[1] and {
    number = t[1], base = tonumber(t[2] or 0), incarnation = tonumber(t[3] or 1), version = t[4] or '0', is_deleted = (t[5] or '') ~= '',
    floor = t[6] or '0', head = tonumber(t[7] or 0), run = t[8], foreign = t[9],
  }
end

-- The last position of the log. A deleted thread has no log, but a new incarnation continues after its last position.
local function head_of(thread, t)
  if not t then return 0 end
  if t.is_deleted then return t.head end
  return t.base + call('LLEN', P .. 'log:' .. thread)
end

-- Returns the thread, after creating it if it does not exist, or beginning a new incarnation if it was deleted.
local function open_thread(thread, owner, t)
  if t and not t.is_deleted then return t end
  local key = P .. 'thread:' .. thread
  if t then
    call('HSET', key, 'life', t.incarnation + 1, 'base', t.head, 'deleted', '')
    t.incarnation, t.base, t.is_deleted = t.incarnation + 1, t.head, false
  else
    t = { number = call('INCR', P .. 'number'), base = 0, incarnation = 1, version = '0', is_deleted = false, floor = '0', head = 0, run = '', foreign = false }
    call('HSET', key, 'run', '', 'number', t.number, 'created', now_text)
    call('ZADD', P .. 'threads', t.number, thread)
  end
  t.is_empty = true
  call('ZADD', P .. 'owner-threads:' .. owner, t.number, thread)
  return t
end

-- To be called after events were appended behind position \`head\`: updates the thread's \`foreign\` and its last patch.
local function note_events(thread, t, events, head, is_leased, patched)
  local set = {}
  local foreign = is_leased and 0 or foreign_of(t.foreign, t.base, head) + #events / 2
  if foreign ~= foreign_of(t.foreign, t.base, head + #events / 2) then
    t.foreign = string.format('%d', foreign)
    set[1], set[2] = 'foreign', t.foreign
  end
  if patched and patched ~= 0 then
    set[#set + 1], set[#set + 2] = 'patch', position_text(head, patched)
    set[#set + 1], set[#set + 2] = 'checksum', sealed_text(events, 1, head, patched)
  end
  if #set > 0 then call('HSET', P .. 'thread:' .. thread, unpack(set)) end
end
`
