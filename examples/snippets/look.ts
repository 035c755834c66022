import { open } from 'holdfast'

// This process only reads runs, and leaves the work to others.
const hf = await open('sqlite:holdfast.db', { worker: false })
const run = await hf.runs.get('refunds-2026-11')

for (const event of await run.events()) {
  console.log(event.seq, event.type, event.step ?? '', event.durationMs ?? '')
}
console.log(await run.info())
await hf.close()
