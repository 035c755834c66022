import { labels } from './parts/labels.ts'
import { laneNames } from './parts/lane-names.ts'
import { runLists } from './parts/run-lists.ts'
import { clock, defineScript, once } from './script.ts'

/**
 * Labels a checkpoint. ARGV: 1 namespace id, 2 clock offset, 3 slot, 4 number, 5 thread, 6 position, 7 label, 8 owner. Answers 1, or 0 if there is no
 * checkpoint. The letter after the checksum of an entry says whether it is one.
 */
export const tagScript = defineScript(
  'write',
  `
${clock}
${once}
if kept then return kept end
${laneNames}
${runLists}
${labels}
local t = call('HMGET', P .. 'thread:' .. ARGV[5], 'number', 'base', 'deleted')
local index = t[1] and (t[3] or '') == '' and ARGV[6] - (t[2] or 0) - 1
local entry = index and index >= 0 and call('LINDEX', P .. 'log:' .. ARGV[5], index)
if not entry or not string.find(entry, '^%d+ [CD]') then return keep(0) end
set_label(ARGV[5], ARGV[7], ARGV[6], run_of_entry(entry, ARGV[5], ARGV[8]))
return keep(1)
`,
)
