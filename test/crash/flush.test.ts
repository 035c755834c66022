import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { Stage } from './stage.ts'
import { operationCount } from './workflows.ts'

// Durable on acknowledgement, seen from below: strace shows what reaches the disk, and when, between two acknowledgements.

let stage: Stage
beforeAll(async () => {
  stage = await Stage.build('sqlite')
})
afterAll(() => stage.close())

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
  const scene = await stage.openScene()
  try {
    const trace = join(scene.folder, 'trace')
    const runs = [{ workflow, id: 'main', threadId: 'main' }]
    const life = await stage.lifeIn(scene, { number: 1, decides: false, runs })
    const strace = ['strace', '-f', '-y', '-qq', '-s', '300', '-e', 'trace=write,pwrite64,fsync,fdatasync', '-o', trace]
    const traced = stage.startProcess({ command: strace })
    const { report, errors } = await traced.live(life, patience(20_000))
    expect(report, errors).not.toBeNull()
    await traced.dismiss()
    const file = life.store.url.slice('sqlite:'.length)
    return readTrace(readFileSync(trace, 'utf8'), { wal: `${file}-wal`, journal: scene.journal })
  } finally {
    await stage.closeScene(scene)
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
