import type { OptionNames } from '../model/known-options.ts'
import type { ProfileHistoryOptions, ProfileMergeOptions, SessionSetOptions } from './memory.ts'

export const setOptionNames: OptionNames<SessionSetOptions> = { ttlMs: true }
export const historyOptionNames: OptionNames<ProfileHistoryOptions> = { limit: true }
export const mergeOptionNames: OptionNames<ProfileMergeOptions> = { why: true, by: true, schema: true }
