/** Creates a run. Needs `threadRow`, `plainStart`, `claimableRuns`, `queueCounts` and `runLists`. */
export const createRun = `
-- Returns { 0, row } where the run exists already, or { 1, position of its input, epoch, due }.
local function create(n)
  local key = P .. 'run:' .. n.run
  if call('EXISTS', key) == 1 then return { 0, cjson.encode((row_of(n.run))) } end
  local t = open_thread(n.thread, n.owner, read_thread(n.thread))
  local head = t.is_empty and t.base or head_of(n.thread, t)
  append(P .. 'log:' .. n.thread, head, n.events, 1)
  note_events(n.thread, t, n.events, head, false, n.patched)
  local number = string.format('%d', call('INCR', P .. 'number'))
  local due = n.due_ms and now + n.due_ms or n.due
  local is_next = join_thread(n.thread, t, number, n.run)
  local is_ready = is_next and due <= now
  write_run(key, n.thread, n.owner, n.lane, n.fingerprint, number, due, is_ready, t.floor, t.base, string.format('%d', head + 1))
  count_run(n.lane, n.run, nil, 'pending', due, now)
  list_run(n.owner, n.lane, number, n.run, now_text, nil, 'pending')
  if is_ready then
    add_ready(t.version .. ':n:' .. n.lane, n.owner, number, n.run, due)
  elseif is_next then
    put_in_lane(lane_of(t.version, n.lane, 0, 'pending'), number, n.run, due)
  end
  return { 1, head + 1, t.floor, due }
end
`
