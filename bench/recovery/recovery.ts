import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'holdfast'

export const runCount = 1_000
export const stepCount = 10

/** What a process that took runs up says of it. */
export interface Recovery {
  /** When the last run was finished, in ms since the epoch. */
  readonly endedAt: number
  /** In ms since the process began: until its code was loaded, and its store was open. */
  readonly loadedMs: number
  readonly openedMs: number
  /** Processor time of the process up to then: what it would take alone on a machine, but for flushes and the server. */
  readonly cpuMs: number
  /** Of it, until its code was loaded. */
  readonly loadingCpuMs: number
  /** Calls of the store, by name. */
  readonly acts: Readonly<Record<string, number>>
  /** Bodies that were entered: of steps that were recorded, and of those that were interrupted. */
  readonly bodies: { readonly recorded: number; readonly interrupted: number }
}

/** Acts that read what a run has done and the state it did it to. */
const reading = ['readLog', 'readSnapshot', 'readRun', 'readThread', 'readChunks', 'readOperation']

export interface MeasuredRecovery extends Recovery {
  /** From the start of the process to the last run finished. */
  readonly tookMs: number
  readonly readsARun: number
}

/** Leaves runs behind by a kill, and has another process finish them. */
export async function measureRecovery(url: string): Promise<MeasuredRecovery> {
  const left = await runProcess('leave', url)
  if (left.signal !== 'SIGKILL') throw new Error(`the first process ended with ${left.signal ?? left.code}: ${left.errors}`)
  await untilLeasesAreDue(url)
  const startedAt = performance.timeOrigin + performance.now()
  const { output, errors } = await runProcess('take-up', url)
  if (output === '') throw new Error(`the second process failed: ${errors}`)
  const recovery = JSON.parse(output) as Recovery
  await checkRuns(url)
  const reads = reading.reduce((sum, act) => sum + (recovery.acts[act] ?? 0), 0)
  return { ...recovery, tookMs: recovery.endedAt - startedAt, readsARun: reads / runCount }
}

/** All of them are running, as the dead process left them. Where only a lease tells that it is dead, they have to run out. */
async function untilLeasesAreDue(url: string): Promise<void> {
  const hf = await open(url, { worker: false })
  const { counts } = await hf.queues.get('default')
  await hf.close()
  if (counts.running !== runCount) throw new Error(`${counts.running} runs are running, not ${runCount}`)
  await new Promise((resolve) => setTimeout(resolve, url.startsWith('sqlite:') ? 0 : 4_200))
}

/** Every run is finished with what its steps recorded, each of which is there once. */
async function checkRuns(url: string): Promise<void> {
  const hf = await open(url, { worker: false })
  const expected = (stepCount * (stepCount + 1)) / 2
  for (let index = 0; index < runCount; index++) {
    const run = await hf.runs.get(`run-${index}`)
    const count = async (type: string) => (await run.events()).filter((event) => event.type === type).length
    const isRight =
      (await run.result()) === expected &&
      (await count('step_completed')) === stepCount + 1 &&
      (await count('run_completed')) === 1 &&
      (await count('run_recovered')) === 1
    if (!isRight) throw new Error(`run ${run.id} is not as it should be: ${JSON.stringify(await run.info())}`)
  }
  await hf.close()
}

function runProcess(act: 'leave' | 'take-up', url: string) {
  const script = join(import.meta.dirname, 'process.ts')
  // The sources are TypeScript: kept compiled they load about as fast as what is published.
  const env = { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), 'holdfast-compile-cache') }
  const child = spawn(process.execPath, [...process.execArgv, script, act, url], { stdio: ['ignore', 'pipe', 'pipe'], env })
  let output = ''
  let errors = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  child.stderr.on('data', (chunk) => {
    errors += chunk
  })
  return new Promise<{ output: string; errors: string; code: number | null; signal: string | null }>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) => resolve({ output, errors, code, signal }))
  })
}
