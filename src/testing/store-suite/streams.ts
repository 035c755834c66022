import { expect } from 'vitest'
import { invariant } from '../../model/errors.ts'
import { droppedChunks } from '../../model/stream.ts'
import { readWholeThread } from '../../store/read-whole-thread.ts'
import type { ChunkQuery, StreamQuery } from '../../store/store.ts'
import { readAllChunks } from '../store-contents.ts'
import { abort, change, chunks, event, guarded, leased, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

const tokens = { owner: '', runId: 'r', stream: 'tokens' }

async function read(scene: Scene, query: Partial<ChunkQuery> = {}) {
  return scene.store.readChunks({ ...tokens, from: 0, limit: 100, ...query })
}

async function offsets(scene: Scene, query: Partial<ChunkQuery> = {}): Promise<number[]> {
  return (await read(scene, query)).map(({ offset }) => offset)
}

async function list(scene: Scene, query: Partial<StreamQuery> = {}) {
  const kept = await scene.store.listStreams({ owner: '', threadId: 'r', limit: 100, ...query })
  return kept.map(({ runId, stream, length }) => ({ runId, stream, length }))
}

async function drop(scene: Scene, query: Partial<StreamQuery> = {}): Promise<number> {
  const { owner = '', threadId = 'r' } = query
  return scene.store.dropChunks({ owner, threadId, streams: await list(scene, query) })
}

export function testStreams(test: StoreTest): void {
  test('chunks get the next offsets of their stream, in the order of the change', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, {
      chunks: [chunks(), chunks({ stream: 'log', size: 3, payload: '[1,2,3]' }), chunks({ size: 1, payload: '["z"]' })],
    })
    await scene.write(claim, { chunks: [chunks({ step: null, count: 0, attempt: 0, payload: new Uint8Array([0, 255]) })] })
    expect(await read(scene)).toEqual([
      { ...chunks(), offset: 0 },
      { ...chunks({ size: 1, payload: '["z"]' }), offset: 2 },
      { ...chunks({ step: null, count: 0, attempt: 0, payload: new Uint8Array([0, 255]) }), offset: 3 },
    ])
    expect(await read(scene, { stream: 'log' })).toEqual([
      { ...chunks({ stream: 'log', size: 3, payload: '[1,2,3]' }), offset: 0 },
    ])
    expect(await read(scene, { stream: 'nothing' })).toEqual([])
    expect(await read(scene, { runId: 'nobody' })).toEqual([])
  })

  test('a stream is read from any offset on, beginning with the record that holds it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (let i = 0; i < 5; i++) await scene.write(claim, { chunks: [chunks({ size: 3, payload: '[1,2,3]' })] })
    expect(await offsets(scene)).toEqual([0, 3, 6, 9, 12])
    expect(await offsets(scene, { from: 2 })).toEqual([0, 3, 6, 9, 12])
    expect(await offsets(scene, { from: 3 })).toEqual([3, 6, 9, 12])
    expect(await offsets(scene, { from: 7, limit: 2 })).toEqual([6, 9])
    expect(await offsets(scene, { from: 14 })).toEqual([12])
    expect(await offsets(scene, { from: 15 })).toEqual([])
    expect(await offsets(scene, { from: 1_000 })).toEqual([])
    expect(await offsets(scene, { limit: 0 })).toEqual([])
  })

  test('what says that chunks are void has an offset of its own and can be read alone', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks(), abort(), chunks({ attempt: 2 })] })
    await scene.write(claim, { chunks: [abort({ attempt: 2 })] })
    expect(await offsets(scene)).toEqual([0, 2, 3, 5])
    expect(await read(scene, { abortsOnly: true })).toEqual([
      { ...abort(), offset: 2 },
      { ...abort({ attempt: 2 }), offset: 5 },
    ])
    expect(await offsets(scene, { abortsOnly: true, from: 3 })).toEqual([5])
    expect(await offsets(scene, { abortsOnly: true, limit: 1 })).toEqual([2])
  })

  test('S1: chunks are there with the result of their change, and a refused change leaves none', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, {
      events: [stepCompleted('a')],
      run: { hasProgress: true, startsTape: true },
      snapshot: '{}',
      chunks: [chunks()],
    })
    expect(await offsets(scene)).toEqual([0])
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'send' } })
    const refused = leased(claim, { operation: { kind: 'intend', key: 'k', name: 'send' }, chunks: [chunks()] })
    expect(refusalOf(await scene.commit(refused))).toBe('operation_taken')
    expect(await offsets(scene)).toEqual([0])
  })

  test('S2: a holder whose lease is gone appends nothing', async (scene) => {
    const stale = await scene.createAndClaim({ id: 'r' })
    await scene.write(stale, { chunks: [chunks()] })
    const claim = await scene.takeOver(stale)
    expect(refusalOf(await scene.commit(leased(stale, { chunks: [chunks()] })))).toBe('lease_lost')
    await scene.write(claim, { chunks: [abort()] })
    expect(await offsets(scene)).toEqual([0, 2])
    await scene.leave(claim, 'completed')
    expect(refusalOf(await scene.commit(leased(claim, { chunks: [chunks()] })))).toBe('lease_lost')
    expect(await offsets(scene)).toEqual([0, 2])
  })

  test('changes of one batch append one after the other, whatever else they do', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const other = await scene.createAndClaim({ id: 's' })
    const answers = await scene.commitAll([
      leased(claim, { chunks: [chunks()] }),
      leased(other, { events: [stepCompleted('a')], chunks: [chunks()] }),
      leased(claim, { events: [stepCompleted('a')], run: { hasProgress: true } }),
      leased(claim, { events: [stepCompleted('b')], chunks: [chunks({ step: 'b' }), chunks({ step: 'b' })] }),
      leased(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true }, chunks: [chunks()] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'none', 'none', 'none', 'none'])
    expect(answers.map((answer) => answer.ok && answer.lastSeq)).toEqual([1, 2, 2, 3, 4])
    expect(await offsets(scene)).toEqual([0, 2, 4, 6])
    expect(await offsets(scene, { runId: 's' })).toEqual([0])
  })

  test('a change without events leaves the log and its checkpoints as they are', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const before = await scene.store.listCheckpoints({ owner: '', threadId: 'r' })
    await scene.write(claim, { chunks: [chunks()], run: { currentStep: 'a', leaseMs: 10_000 } })
    expect((await scene.thread('r')).headSeq).toBe(1)
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'r' })).toEqual(before)
    expect((await scene.run('r')).currentStep).toBe('a')
  })

  test('S7: streams of different runs, owners and names have nothing in common', async (scene) => {
    const names = ['a', 'a:1', '1:a', '*', '%', "it's", '__proto__', 'é']
    for (const owner of ['', 'ann', '1']) {
      for (const id of ['r', '1:r', 'r:tokens']) {
        const claim = await scene.createAndClaim({ id, owner })
        await scene.write(claim, { chunks: names.map((stream, i) => chunks({ stream, payload: `["${owner}",${i},"${id}"]` })) })
      }
    }
    for (const owner of ['', 'ann', '1']) {
      for (const runId of ['r', '1:r', 'r:tokens']) {
        for (const [i, stream] of names.entries()) {
          const records = await readAllChunks(scene.store, { owner, runId, stream })
          expect(records).toEqual([{ ...chunks({ stream, payload: `["${owner}",${i},"${runId}"]` }), offset: 0 }])
        }
      }
    }
  })

  test('streams go with their thread, and a new life begins at offset 0', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks(), abort()] })
    await scene.store.deleteThread({ owner: '', threadId: 'r', at: 5 })
    expect(await offsets(scene)).toEqual([])
    expect(await offsets(scene, { abortsOnly: true })).toEqual([])
    expect(refusalOf(await scene.commit(leased(claim, { chunks: [chunks()] })))).toBe('lease_lost')
    const again = await scene.createAndClaim({ id: 'r' })
    expect(await offsets(scene)).toEqual([])
    await scene.write(again, { chunks: [chunks()] })
    expect(await offsets(scene)).toEqual([0])
  })

  test('a stream outlives its store being closed', async (scene) => {
    if (!scene.canReopen) return
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks(), abort()] })
    const before = await read(scene)
    await scene.reopen()
    expect(await read(scene)).toEqual(before)
  })

  test('subscribers hear of chunks', async (scene) => {
    if (scene.store.subscribe === undefined) return
    const claim = await scene.createAndClaim({ id: 'r' })
    const heard: boolean[] = []
    const unsubscribe = scene.store.subscribe(({ runId, hasChunks }) => {
      if (runId === 'r') heard.push(hasChunks === true)
    })
    await scene.write(claim, { chunks: [chunks()] })
    await expect.poll(() => heard).toContain(true)
    unsubscribe()
  })

  test('a long stream is read page by page, without a gap', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const batch = Array.from({ length: 50 }, () => chunks({ size: 7 }))
    for (let i = 0; i < 6; i++) await scene.write(claim, { chunks: batch })
    const records = await readAllChunks(scene.store, tokens)
    expect(records.map(({ offset }) => offset)).toEqual(Array.from({ length: 300 }, (_, i) => i * 7))
  })

  test('a change that names no run appends nothing', async (scene) => {
    await scene.createAndClaim({ id: 'r' })
    await scene.commit(change({ threadId: 'r', runId: 'nobody', chunks: [chunks()] }))
    expect(await read(scene, { runId: 'nobody' })).toEqual([])
  })

  test('the chunks of a run that has ended are dropped: a record as long as they were takes their place', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks(), abort(), chunks({ attempt: 2 }), chunks({ stream: 'log', size: 7 })] })
    expect(await list(scene)).toEqual([])
    await scene.leave(claim, 'completed')
    const [kept] = await scene.store.listStreams({ owner: '', threadId: 'r', limit: 1 })
    const { finishedAt } = await scene.run('r')
    expect(kept).toEqual({ runId: 'r', stream: 'log', length: 7, workflow: 'report', status: 'completed', finishedAt })
    expect(await list(scene)).toEqual([
      { runId: 'r', stream: 'log', length: 7 },
      { runId: 'r', stream: 'tokens', length: 5 },
    ])
    expect(await drop(scene)).toBe(2)
    expect(await read(scene)).toEqual([droppedChunks('tokens', 5)])
    expect(await read(scene, { from: 4 })).toEqual([droppedChunks('tokens', 5)])
    expect(await read(scene, { from: 5 })).toEqual([])
    expect(await read(scene, { abortsOnly: true })).toEqual([droppedChunks('tokens', 5)])
    expect(await read(scene, { abortsOnly: true, from: 1 })).toEqual([])
    expect(await read(scene, { stream: 'log' })).toEqual([droppedChunks('log', 7)])
    expect(await list(scene)).toEqual([])
    expect((await scene.store.readThreadImage({ owner: '', threadId: 'r' }))?.runs[0]?.streams).toEqual([
      { stream: 'log', length: 7 },
      { stream: 'tokens', length: 5 },
    ])
    if (!scene.canReopen) return
    await scene.reopen()
    expect(await read(scene)).toEqual([droppedChunks('tokens', 5)])
  })

  test('chunks of a run that has not ended, or that are not as they were listed, stay', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks()] })
    const dropped = (streams: object) =>
      scene.store.dropChunks({ owner: '', threadId: 'r', streams: [{ runId: 'r', stream: 'tokens', length: 2, ...streams }] })
    expect(await dropped({})).toBe(0)
    await scene.leave(claim, 'waiting', { due: { inMs: 0 } })
    expect(await dropped({})).toBe(0)
    await scene.leave(await scene.claimOne(), 'failed')
    expect(await dropped({ length: 1 })).toBe(0)
    expect(await dropped({ stream: 'Tokens' })).toBe(0)
    expect(await dropped({ runId: 'nobody' })).toBe(0)
    expect(await scene.store.dropChunks({ owner: '', threadId: 'r', streams: [] })).toBe(0)
    const streams = await list(scene)
    expect(await scene.store.dropChunks({ owner: 'ann', threadId: 'r', streams })).toBe(0)
    expect(await scene.store.dropChunks({ owner: '', threadId: 'nobody', streams })).toBe(0)
    expect(await list(scene, { owner: 'ann' })).toEqual([])
    expect(await read(scene)).toEqual([{ ...chunks(), offset: 0 }])
    expect(await dropped({})).toBe(1)
    expect(await dropped({})).toBe(0)
  })

  test('a run that continues after its chunks were dropped writes on at the next offset, and they can be dropped again', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks({ size: 3 })] })
    await scene.leave(claim, 'failed')
    expect(await drop(scene)).toBe(1)
    await scene.commit(guarded(await scene.run('r'), {}, { events: [event('run_retried')], run: { status: 'pending' } }))
    const again = await scene.claimOne()
    await scene.write(again, { chunks: [chunks({ tape: 2 }), abort({ tape: 2 })] })
    expect(await offsets(scene)).toEqual([0, 3, 5])
    expect(await offsets(scene, { from: 3 })).toEqual([3, 5])
    expect(await list(scene)).toEqual([])
    await scene.leave(again, 'completed')
    expect(await list(scene)).toEqual([{ runId: 'r', stream: 'tokens', length: 6 }])
    expect(await drop(scene)).toBe(1)
    expect(await read(scene)).toEqual([droppedChunks('tokens', 6)])
  })

  test('streams are listed by thread, by run, by when the run ended, and in bounded parts', async (scene) => {
    for (const [id, threadId] of [
      ['b', 'r'],
      ['a', 'r'],
      ['c', 's'],
    ] as const) {
      const claim = await scene.createAndClaim({ id, threadId })
      await scene.write(claim, { chunks: [chunks({ stream: 'é' }), chunks({ stream: 'z' })] })
      await scene.leave(claim, 'completed')
      scene.advance(1_000)
    }
    await scene.createAndClaim({ id: 'd', threadId: 'r' })
    const names = async (query: Partial<StreamQuery> = {}) =>
      (await list(scene, query)).map(({ runId, stream }) => runId + stream)
    expect(await names()).toEqual(['bz', 'bé', 'az', 'aé'])
    expect(await names({ limit: 3 })).toEqual(['bz', 'bé', 'az'])
    expect(await names({ limit: 0 })).toEqual([])
    expect(await names({ runIds: ['a', 'c', 'd', 'nobody'] })).toEqual(['az', 'aé'])
    expect(await names({ runIds: ['a', 'b', 'b'] })).toEqual(['bz', 'bé', 'az', 'aé'])
    expect(await names({ runIds: [] })).toEqual([])
    const { finishedAt } = await scene.run('a')
    expect(await names({ endedBefore: finishedAt ?? 0 })).toEqual(['bz', 'bé'])
    expect(await names({ endedBefore: (finishedAt ?? 0) + 1, runIds: ['a'] })).toEqual(['az', 'aé'])
    expect(await drop(scene, { runIds: ['a'] })).toBe(2)
    expect(await names()).toEqual(['bz', 'bé'])
  })

  test('S1: of a stream that is dropped a reader finds all chunks, or the record in their place', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (let i = 0; i < 20; i++) await scene.write(claim, { chunks: [chunks({ size: 3 })] })
    await scene.leave(claim, 'completed')
    const streams = await list(scene)
    const [dropped, ...reads] = await Promise.all([
      Promise.all([1, 2, 3].map(() => scene.store.dropChunks({ owner: '', threadId: 'r', streams }))),
      ...Array.from({ length: 30 }, () => offsets(scene)),
    ])
    expect(dropped.reduce((sum, count) => sum + count, 0)).toBe(1)
    for (const found of reads) expect([[0], Array.from({ length: 20 }, (_, i) => 3 * i)]).toContainEqual(found)
  })

  test('a thread whose chunks were dropped moves as it is', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { chunks: [chunks(), abort()] })
    await scene.leave(claim, 'completed')
    await drop(scene)
    const whole = await readWholeThread(scene.store, { owner: '', threadId: 'r' })
    expect(whole?.chunks).toEqual([{ runId: 'r', ...droppedChunks('tokens', 3) }])
    invariant(whole !== null, 'the thread is missing')
    const moved = {
      ...{ ...whole, thread: { ...whole.thread, threadId: 's' }, log: whole.log.map((record) => ({ ...record, runId: 's' })) },
      runs: whole.runs.map((image) => ({ ...image, run: { ...image.run, id: 's', threadId: 's' } })),
      chunks: whole.chunks.map((one) => ({ ...one, runId: 's' })),
    }
    expect(await scene.store.restoreThread(moved)).toEqual({ ok: true })
    expect(await read(scene, { runId: 's' })).toEqual([droppedChunks('tokens', 3)])
    expect(await list(scene, { threadId: 's' })).toEqual([])
  })
}
