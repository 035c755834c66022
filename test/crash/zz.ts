import { Stage } from './stage.ts'
import { CrashHarness } from './harness.ts'
const stage = await Stage.build()
try {
let t=performance.now()
const h = await CrashHarness.prepare(stage)
console.log('boundaries', h.boundaries.length, (performance.now()-t).toFixed())
t=performance.now()
let r = await h.killOnAndOn(3, 1)
console.log('chain', r.kills, r.scenes, r.broken.length, (performance.now()-t).toFixed())
for (const b of r.broken.slice(0,40)) console.log(b.slice(0,1700))
t=performance.now()
r = await h.killTwice(25, 1)
console.log('twice', r.kills, r.scenes, r.broken.length, (performance.now()-t).toFixed())
for (const b of r.broken.slice(0,40)) console.log(b.slice(0,700))
} finally { stage.close() }
