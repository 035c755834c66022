import { defineScript, once, slotMs } from './script.ts'

/** Opens a slot of a sender before the first write in it. ARGV: 1 namespace id, 2 slot. */
export const openSlotScript = defineScript(
  'free',
  `return call('SET', P .. 'answer:' .. ARGV[2], '0000000000000000', 'PX', ${slotMs})`,
)

/** ARGV: 1 namespace id, 2 nothing, 3 slot, 4 number. Answers what that write was answered, in an array; an empty one if it was not done. */
export const recallScript = defineScript('read', `${once} return kept and { kept } or {}`)
