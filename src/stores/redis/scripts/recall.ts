import { defineScript, once } from './script.ts'

/** ARGV: 1 life, 2 nothing, 3 slot, 4 number. Answers what that write was answered, in an array; an empty one if it was not carried out. */
export const recallScript = defineScript('read', `${once} return kept and { kept } or {}`)
