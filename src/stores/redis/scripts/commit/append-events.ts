/** Appends events to a log. One and two events, which is what steps write, are spelled out: they need no table. */
export const appendEvents = `
-- Events are pairs of checksum and entry, from index \`from\` on; \`head\` is the last position before them. A checksum is sealed with its
-- position, as in model/checksum.ts; the sum is exact in doubles.
local function append(log, head, events, from)
  local first, length = head + 1, #events
  if length == from + 3 then
    call('RPUSH', log, (events[from] + first) % 4294967296 .. ' ' .. events[from + 1],
      (events[from + 2] + first + 1) % 4294967296 .. ' ' .. events[from + 3])
  elseif length == from + 1 then
    call('RPUSH', log, (events[from] + first) % 4294967296 .. ' ' .. events[from + 1])
  elseif length > from then
    local entries, count = {}, 0
    for i = from, length, 2 do
      entries[count + 1] = (events[i] + first + count) % 4294967296 .. ' ' .. events[i + 1]
      count = count + 1
    end
    for i = 1, count, 1000 do call('RPUSH', log, unpack(entries, i, math.min(i + 999, count))) end
  end
end

-- Position and sealed checksum of the event with this number, counted from 1.
local function position_text(head, number)
  return string.format('%d', head + number)
end
local function sealed_text(events, from, head, number)
  return string.format('%d', (events[from + 2 * (number - 1)] + head + number) % 4294967296)
end
`
