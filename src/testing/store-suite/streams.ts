import { expect } from 'vitest'
import type { ChunkQuery } from '../../store/store.ts'
import { readAllChunks } from '../store-contents.ts'
import { abort, change, chunks, event, leased, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

const tokens = { owner: '', runId: 'r', stream: 'tokens' }

async function read(scene: Scene, query: Partial<ChunkQuery> = {}) {
  return scene.store.readChunks({ ...tokens, from: 0, limit: 100, ...query })
}

async function offsets(scene: Scene, query: Partial<ChunkQuery> = {}): Promise<number[]> {
  return (await read(scene, query)).map(({ offset }) => offset)
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
}
