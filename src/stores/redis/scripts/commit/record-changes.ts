import { endOfTime } from '../../../../model/record.ts'
import { recordFields } from '../../record-row.ts'
import { quoted } from '../script.ts'

/** Judges and writes what a change does to records. Needs `records`. */
export const recordChanges = `
local function expiry_of(w)
  if w.expires_ms then return math.min(${endOfTime}, math.max(0, now + w.expires_ms)) end
  return w.expires
end

local function judge_records(changes)
  for i, w in ipairs(changes) do
    if w.if_version or w.if_updated then
      local version = live_version(w.record, now)
      local updated = version > 0 and tonumber(call('HGET', P .. 'record:' .. w.record, 'updated')) or nil
      if w.if_version and version ~= w.if_version or w.if_updated and updated ~= w.if_updated then
        return { 'record_changed', i, version > 0 and call('HMGET', P .. 'record:' .. w.record, ${quoted(recordFields)}) or 0 }
      end
    end
  end
end

local function touch_record(record, expires)
  local row = P .. 'record:' .. record
  local before = call('HMGET', row, 'expires', 'sum')
  local last = tonumber(before[1]) or 0
  local sum = ((tonumber(before[2]) or 0) - last % 4294967296 + (expires or 0) % 4294967296) % 4294967296
  set_expiry(record, expires)
  call('HSET', row, 'expires', expires and string.format('%d', expires) or '', 'sum', string.format('%d', sum))
end

local function write_records(changes)
  for _, w in ipairs(changes) do
    local version = live_version(w.record, now)
    if w.kind == 'put' then
      local created = version > 0 and tonumber(call('HGET', P .. 'record:' .. w.record, 'created')) or now
      put_record(w.record, w, version + 1, created, now, expiry_of(w))
    elseif w.kind == 'delete' and version > 0 then
      drop_record(w.record)
    elseif w.kind == 'touch' and version > 0 and (w.of_version or version) == version then
      touch_record(w.record, expiry_of(w))
    elseif w.kind == 'restore' and version == 0 then
      put_record(w.record, w, w.version, w.created, w.updated, w.expires)
    end
  end
end
`
