/** The key of a stream. The length in front says where the run's name ends. */
export const streamKey = `
local function stream_key(run, stream)
  return #run .. ':' .. run .. stream
end
`

/** Appends the chunks of a change: { stream, size, checksum, whether it voids others, header and payload } … Needs `streamKey`. */
export const appendChunks = `
local function append_chunks(run, chunks)
  local lengths = P .. 'streams:' .. run
  for _, k in ipairs(chunks) do
    local first, key = tonumber(call('HGET', lengths, k[1]) or 0), stream_key(run, k[1])
    local entry = first .. ' ' .. (k[3] + first) % 4294967296 .. ' ' .. k[5]
    call('ZADD', P .. 'chunks:' .. key, first, entry)
    if k[4] then call('ZADD', P .. 'voids:' .. key, first, entry) end
    call('HSET', lengths, k[1], first + k[2])
  end
end
`

/** Needs `streamKey`. */
export const deleteStreams = `
local function delete_streams(run)
  for _, stream in ipairs(call('HKEYS', P .. 'streams:' .. run)) do
    local key = stream_key(run, stream)
    call('UNLINK', P .. 'chunks:' .. key, P .. 'voids:' .. key)
  end
  call('UNLINK', P .. 'streams:' .. run)
end
`
