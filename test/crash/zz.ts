import { Stage } from './stage.ts'
import { killAtSystemCalls } from './syscalls.ts'
const stage = await Stage.build()
try {
let t=performance.now()
const o = await killAtSystemCalls(stage, {count: 20, seed: 1})
console.log((performance.now()-t).toFixed(), stage.killCount, o)
} finally { stage.close() }
