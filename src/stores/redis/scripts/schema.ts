import { createHash } from 'node:crypto'
import type { Script } from './script.ts'

const text = `#!lua
local P = string.sub(KEYS[1], 1, -5)
local life = redis.call('GET', KEYS[1])
if life then return life end
if redis.call('EXISTS', P .. 'number') == 1 then return redis.error_reply('HOLDFAST none') end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
`

/**
 * Begins the life of a namespace where there is none. ARGV: 1 its life if it begins now. Answers the life it has. Of many processes
 * that come at once, the first begins it. Data without a life is not taken over: something has removed part of it.
 */
export const beginLifeScript: Script = { text, sha: createHash('sha1').update(text).digest('hex') }
