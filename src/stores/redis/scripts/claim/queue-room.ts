import { setBackToleranceMs } from '../../../../model/clock-set-back.ts'

/** How many more runs of a queue may be taken: by this claim (`takes`), by its concurrency (`places`), and by its rate limit (`starts`). */
export const queueRoom = `
local rooms, takes = {}, {}
local function room_of(queue)
  local room = rooms[queue]
  if room then return room end
  local q = call('HMGET', P .. 'queue:' .. queue, 'concurrency', 'rate_count', 'rate_per_ms', 'is_paused')
  local concurrency, count = q[1] or '', q[2] or ''
  room = { takes = takes[queue] or math.huge, places = math.huge, starts = math.huge, is_limited = 0 }
  if concurrency ~= '' then room.places = concurrency - (call('HGET', P .. 'counts:' .. queue, 'running') or 0) end
  if q[4] == '1' then room.places, room.takes = 0, 0 end
  if count ~= '' then
    room.since = now - q[3]
    room.starts = tonumber(count)
    local starts = call('HGETALL', P .. 'starts:' .. queue)
    for i = 1, #starts, 2 do
      -- A start far in the future was noted before the clock was set back, and does not count.
      local at = tonumber(starts[i])
      if at > room.since and at <= now + ${setBackToleranceMs} then room.starts = room.starts - starts[i + 1] end
    end
  end
  if concurrency ~= '' or count ~= '' then room.is_limited = 1 end
  rooms[queue] = room
  return room
end
`
