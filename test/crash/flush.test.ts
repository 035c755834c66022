import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { CrashTestBed } from './bed/crash-test-bed.ts'
import { operationCount } from './workflows/crash-window-workflows.ts'

// Durable on acknowledgement, seen from below: strace shows what reaches the disk, and when, between two acknowledgements.

let bed: CrashTestBed
beforeAll(async () => {
  bed = await CrashTestBed.create('sqlite')
})
afterAll(() => bed.close())

test('every acknowledgement of a lone run comes after a flush of its own that covers it', async () => {
  const notes = await notesOf('windows-step')
  const acks = notes.filter(({ kind }) => kind === 'ack')
  expect(acks).toHaveLength(operationCount)
  for (const { flushes, isCovered } of acks) expect([flushes > 0, isCovered]).toEqual([true, true])
})

test('an effect is flushed before its call, and again before its acknowledgement', async () => {
  const notes = await notesOf('windows-neither')
  expect(notes.map(({ kind }) => kind)).toEqual(Array.from({ length: operationCount }, () => ['body', 'ack']).flat())
  for (const { flushes, isCovered } of notes) expect([flushes > 0, isCovered]).toEqual([true, true])
})

/** A body was entered, or a result was given to the function. */
interface TracedNote {
  readonly kind: 'body' | 'ack'
  /** Flushes of the write-ahead log since the note before. */
  readonly flushes: number
  /** Everything written to it had been flushed. */
  readonly isCovered: boolean
}

/** What a run that nothing else runs beside did to the disk. */
async function notesOf(workflow: string): Promise<TracedNote[]> {
  const environment = await bed.setUp()
  try {
    const trace = join(environment.folder, 'trace')
    const runs = [{ workflow, id: 'main', threadId: 'main' }]
    const processRun = await bed.processIn(environment, { number: 1, resolvesUnsure: false, runs })
    const strace = ['strace', '-f', '-y', '-qq', '-s', '300', '-e', 'trace=write,pwrite64,fsync,fdatasync', '-o', trace]
    const traced = bed.startProcess({ command: strace })
    const { report, errors } = await traced.run(processRun, patience(20_000))
    expect(report, errors).not.toBeNull()
    await traced.end()
    const file = processRun.store.url.slice('sqlite:'.length)
    return readTrace(readFileSync(trace, 'utf8'), { wal: `${file}-wal`, journal: environment.journal })
  } finally {
    await bed.tearDown(environment)
  }
}

function readTrace(trace: string, { wal, journal }: { wal: string; journal: string }): TracedNote[] {
  const notes: TracedNote[] = []
  let flushes = 0
  let isDirty = false
  for (const line of trace.split('\n')) {
    if (line.includes(`<${wal}>`) && / pwrite64\(/.test(line)) isDirty = true
    else if (line.includes(`<${wal}>`) && / (fsync|fdatasync)\(/.test(line)) {
      flushes++
      isDirty = false
    } else if (line.includes(`<${journal}>`) && / write\(/.test(line)) {
      notes.push({ kind: line.includes('\\"ack\\"') ? 'ack' : 'body', flushes, isCovered: !isDirty })
      flushes = 0
    }
  }
  return notes
}
