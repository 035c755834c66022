import { type RunHandle, type StreamItem, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import { patience } from '../patience.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate } from './runs.ts'
import { onEverySharedStore, onEveryStore } from './stores.ts'

const noRetry = { retry: { attempts: 1 } }
const atOnce = { retry: { attempts: 3, minMs: 0, maxMs: 0, jitter: false } } as const

async function all(run: RunHandle, name: string, options: { from?: number } = {}): Promise<StreamItem[]> {
  const items: StreamItem[] = []
  for await (const item of run.stream(name, options)) items.push(item)
  return items
}

/** What a reader shows that keeps its text by part, as the guide says. */
function shown(items: readonly StreamItem[]): string {
  const parts = new Map<string, string>()
  for (const { part, chunk, isAborted } of items) {
    if (isAborted) parts.delete(part)
    else parts.set(part, (parts.get(part) ?? '') + String(chunk))
  }
  return [...parts.values()].join('')
}

const offsetsOf = (items: readonly StreamItem[]) => items.map(({ offset }) => offset)
const upTo = (length: number) => Array.from({ length }, (_, index) => index)

onEveryStore('a stream', (scene) => {
  it('is read while it is written, by a client elsewhere, and ends when the run has ended', async () => {
    const goOn = gate()
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        const tokens = step.stream('tokens')
        for (const word of ['once', 'upon', 'a']) await tokens.write(word)
        await goOn.promise
        await tokens.write('time')
        return 'done'
      }),
    )
    const hf = await scene.open({ workflows: [answer] })
    const reader = await scene.open({ worker: false })
    await hf.start(answer, undefined, { id: 'r' })
    const items: StreamItem[] = []
    for await (const item of (await reader.runs.get('r')).stream<string>('tokens')) {
      items.push(item)
      // Only a reader that sees chunks of a step that is still running comes to its end.
      if (item.chunk === 'a') goOn.open()
    }
    expect(items.map(({ chunk }) => chunk)).toEqual(['once', 'upon', 'a', 'time'])
    expect(offsetsOf(items)).toEqual([0, 1, 2, 3])
    expect(items[0]).toEqual({ offset: 0, chunk: 'once', step: 'write', attempt: 1, part: items[3]?.part })
  })

  it('goes on after the last offset that a reader has seen', async () => {
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        for (let i = 0; i < 300; i++) await step.stream('numbers').write(i)
      }),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    const first: StreamItem[] = []
    for await (const item of run.stream('numbers')) {
      first.push(item)
      if (first.length === 120) break
    }
    const rest = await all(run, 'numbers', { from: 120 })
    expect([...first, ...rest].map(({ chunk }) => chunk)).toEqual(upTo(300))
    expect(offsetsOf(rest)).toEqual(upTo(300).slice(120))
    expect(await all(run, 'numbers', { from: 300 })).toEqual([])
    expect(await all(run, 'nothing')).toEqual([])
  })

  it('keeps chunks as they were when they were written, of any kind that can be stored', async () => {
    const values = [
      'text',
      'é🦞',
      '',
      null,
      1.5,
      -0,
      10n,
      new Date(5),
      new Map([['a', new Set([1])]]),
      { deep: [1, { two: 2 }] },
      undefined,
    ]
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        const stream = step.stream('all')
        for (const value of values) await stream.write(value)
        const changing = { at: 1 }
        await stream.write(changing)
        changing.at = 2
        await stream.write('x'.repeat(300_000))
        await stream.write(new Uint8Array([0, 255]))
      }),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    const chunks = (await all(run, 'all')).map(({ chunk }) => chunk)
    expect(chunks).toEqual([...values, { at: 1 }, 'x'.repeat(300_000), new Uint8Array([0, 255])])
  })

  it('keeps the order of steps, and of what the function writes between them', async () => {
    const answer = workflow('answer', async (ctx) => {
      const stream = ctx.stream('lines')
      await stream.write('a')
      await ctx.step('one', (step) => step.stream('lines').write('b'))
      await stream.write('c')
      await ctx.step('two', (step) => step.stream('lines').write('d'))
      await ctx.map('three', [1, 2], (item, _, step) => step.stream('lines').write(`e${item}`), { concurrency: 1 })
      await stream.write('f')
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    const items = await all(run, 'lines')
    expect(items.map(({ chunk, step }) => [step, chunk])).toEqual([
      [undefined, 'a'],
      ['one', 'b'],
      [undefined, 'c'],
      ['two', 'd'],
      ['three[0]', 'e1'],
      ['three[1]', 'e2'],
      [undefined, 'f'],
    ])
    expect(offsetsOf(items)).toEqual(upTo(7))
  })

  it('is durable before the result of its step is', async () => {
    const answer = workflow('answer', async (ctx) => {
      await ctx.step('write', async (step) => {
        await step.stream('tokens').write('said')
      })
      await ctx.step('rest', () => new Promise<never>(() => {}))
    })
    const { hf, dead } = await scene.openMortal({ workflows: [answer] }, { after: 'step_completed' })
    const run = await hf.start(answer, undefined, { id: 'r' })
    await dead
    const other = await scene.open({ worker: false })
    const { value } = await (await other.runs.get(run.id)).stream('tokens').next()
    expect(value).toMatchObject({ offset: 0, chunk: 'said' })
  })

  it('does not hold a write for every chunk: 10,000 tokens take a few', async () => {
    let writes = 0
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        const tokens = step.stream('tokens')
        for (let i = 0; i < 10_000; i++) {
          await tokens.write(`token ${i} `)
          if (i % 100 === 0) await new Promise((resolve) => setImmediate(resolve))
        }
      }),
    )
    const counting = (store: Parameters<typeof wrapStore>[0]) =>
      wrapStore(store, { before: (act) => void (act === 'commit' && writes++) })
    const hf = await scene.openWrapped(counting, { workflows: [answer] })
    const started = performance.now()
    const run = await hf.start(answer)
    await run.result()
    const elapsedMs = performance.now() - started
    const items = await all(run, 'tokens')
    expect(items.map(({ chunk }) => chunk)).toEqual(upTo(10_000).map((i) => `token ${i} `))
    // One for the start, one for the end, one for the first chunk, one every 50 ms and one for every 64 KiB.
    expect(writes).toBeLessThanOrEqual(4 + elapsedMs / 50 + (10_000 * 30) / 65_536)
  })

  it('of a step that failed is void: readers get a mark, and late ones see it at once', async () => {
    const fails = gate()
    const answer = workflow('answer', (ctx) =>
      ctx.step(
        'write',
        async (step) => {
          const tokens = step.stream('tokens')
          for (const word of ['wrong', ` ${step.attempt}`]) await tokens.write(word)
          if (step.attempt > 1) return tokens.write(' right')
          await fails.promise
          throw new Error('the model hung up')
        },
        atOnce,
      ),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    const live: StreamItem[] = []
    for await (const item of run.stream('tokens')) {
      live.push(item)
      if (live.length === 2) fails.open()
    }
    expect(offsetsOf(live)).toEqual(upTo(6))
    expect(live.map(({ chunk, isAborted, attempt }) => [chunk, isAborted, attempt])).toEqual([
      ['wrong', undefined, 1],
      [' 1', undefined, 1],
      [undefined, true, 1],
      ['wrong', undefined, 2],
      [' 2', undefined, 2],
      [' right', undefined, 2],
    ])
    expect(shown(live)).toBe('wrong 2 right')
    // Who reads it afterwards sees on every chunk that it is void; who comes back in the middle gets the mark.
    const late = await all(run, 'tokens')
    expect(late.map(({ isAborted }) => isAborted)).toEqual([true, true, true, undefined, undefined, undefined])
    expect(shown(late)).toBe('wrong 2 right')
    expect(shown([...live.slice(0, 1), ...(await all(run, 'tokens', { from: 1 }))])).toBe('wrong 2 right')
    expect(shown([...live.slice(0, 2), ...(await all(run, 'tokens', { from: 2 }))])).toBe('wrong 2 right')
  })

  it('marks only the attempt that failed, not other calls of the same step', async () => {
    const answer = workflow('answer', async (ctx) => {
      for (const turn of [1, 2]) {
        await ctx.step(
          'turn',
          async (step) => {
            await step.stream('tokens').write(`${turn}.${step.attempt} `)
            if (turn === 2 && step.attempt === 1) throw new Error('no')
          },
          atOnce,
        )
      }
      await ctx.step(
        'last',
        (step) => {
          void step.stream('tokens').write('never ')
          throw new Error('fails for good')
        },
        { ...noRetry, onFailure: 'skip' },
      )
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    expect(shown(await all(run, 'tokens'))).toBe('1.1 2.2 ')
  })

  it('of a worker that died is void, and what the function wrote is there once', async () => {
    const bodies: number[] = []
    const hang = gate()
    const answer = workflow('answer', async (ctx) => {
      await ctx.stream('tokens').write('a')
      await ctx.step('one', (step) => step.stream('tokens').write('b'))
      await ctx.stream('tokens').write('c')
      await ctx.step('two', async (step) => {
        bodies.push(step.attempt)
        await step.stream('tokens').write(`d${bodies.length}`)
        if (bodies.length === 1) await hang.promise
      })
      await ctx.stream('tokens').write('e')
    })
    const mortal = await scene.openMortal({ workflows: [answer] })
    await mortal.hf.start(answer, undefined, { id: 'r' })
    const reader = await scene.open({ worker: false })
    const live: StreamItem[] = []
    const run = await reader.runs.get('r')
    for await (const item of run.stream('tokens')) {
      live.push(item)
      if (item.chunk !== 'd1') continue
      await mortal.die()
      scene.advance(11_000)
      await scene.open({ workflows: [answer] })
    }
    expect(bodies).toEqual([1, 1])
    expect(live.map(({ chunk, isAborted }) => (isAborted ? 'void' : chunk))).toEqual(['a', 'b', 'c', 'd1', 'void', 'd2', 'e'])
    expect(offsetsOf(live)).toEqual(upTo(7))
    expect(shown(live)).toBe(shown(await all(run, 'tokens')))
    expect((await all(run, 'tokens')).filter(({ isAborted }) => isAborted).map(({ offset }) => offset)).toEqual([3, 4])
    hang.open()
  })

  it('takes nothing from a worker that lost its run', async () => {
    const wake = gate()
    let bodies = 0
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        const me = ++bodies
        await step.stream('tokens').write(`${me} `)
        if (me === 1) {
          await wake.promise
          await step.stream('tokens').write('from the grave')
        }
      }),
    )
    // Its heartbeats are lost, so that it does not learn that somebody else has the run.
    const paused = (store: Parameters<typeof wrapStore>[0]) =>
      wrapStore(store, { before: (act) => (act === 'renew' ? new Promise(() => {}) : undefined) })
    const zombie = await scene.openWrapped(paused, { workflows: [answer], worker: { closeGraceMs: 0 } })
    const run = await zombie.start(answer, undefined, { id: 'r' })
    await run.stream('tokens').next()
    scene.advance(11_000)
    const heir = await scene.open({ workflows: [answer] })
    await (await heir.runs.get('r')).result()
    wake.open()
    await new Promise((resolve) => setTimeout(resolve, 120))
    const items = await all(await heir.runs.get('r'), 'tokens')
    expect(items.map(({ chunk }) => chunk)).toEqual(['1 ', undefined, '2 '])
    expect(shown(items)).toBe('2 ')
  })

  it('of a run that is cancelled ends with a mark for what was being written', async () => {
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        await step.stream('tokens').write('half an ans')
        await new Promise((_, reject) => step.signal.addEventListener('abort', reject))
      }),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    const items: StreamItem[] = []
    for await (const item of run.stream('tokens')) {
      items.push(item)
      if (item.offset === 0) await run.cancel()
    }
    expect(items.map(({ isAborted }) => isAborted)).toEqual([undefined, true])
    expect(shown(items)).toBe('')
  })

  it('hears nothing more of an attempt whose time is over', async () => {
    const goOn = gate()
    let late: Promise<void> | undefined
    const answer = workflow('answer', (ctx) =>
      ctx.step(
        'write',
        async (step) => {
          const tokens = step.stream('tokens')
          await tokens.write(`${step.attempt}`)
          if (step.attempt === 2) {
            goOn.open()
            await late
            return
          }
          late = goOn.promise.then(() => tokens.write('too late'))
          await new Promise(() => {})
        },
        { ...atOnce, timeoutMs: patience(300) },
      ),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    expect((await all(run, 'tokens')).map(({ chunk }) => chunk)).toEqual(['1', undefined, '2'])
  })

  it('goes on over continueAs, where steps are counted anew', async () => {
    const answer = workflow('answer', async (ctx, turn: number) => {
      await ctx.stream('tokens').write(`${turn}:`)
      await ctx.step(
        'write',
        async (step) => {
          await step.stream('tokens').write(`${turn}.${step.attempt} `)
          if (turn === 2 && step.attempt === 1) throw new Error('again')
        },
        atOnce,
      )
      await ctx.stream('tokens').write(turn < 3 ? '… ' : 'end')
      if (turn < 3) await ctx.continueAs(turn + 1)
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer, 1)
    await run.result()
    const items = await all(run, 'tokens')
    expect(offsetsOf(items)).toEqual(upTo(items.length))
    const kept = items.filter(({ isAborted }) => !isAborted)
    expect(kept.map(({ chunk }) => chunk).join('')).toBe('1:1.1 … 2:2.2 … 3:3.1 end')
  })

  it('is refused what cannot be stored, in a body when it is the ctx of the function, and by a bad name', async () => {
    const codes: unknown[] = []
    const codeOf = (write: () => unknown) => {
      try {
        write()
        codes.push('nothing was thrown')
      } catch (error) {
        codes.push((error as { code?: string }).code)
      }
    }
    const answer = workflow('answer', async (ctx) => {
      const outside = ctx.stream('x')
      codeOf(() => outside.write(() => {}))
      codeOf(() => ctx.stream(''))
      await ctx.step('write', (step) => {
        codeOf(() => outside.write('inside'))
        codeOf(() => ctx.stream('x'))
        codeOf(() => step.stream('x').write(Symbol('s')))
        codeOf(() => step.stream(5 as never))
      })
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    expect(codes).toEqual(['value_not_storable', 'invalid_id', 'nested_call', 'nested_call', 'value_not_storable', 'invalid_id'])
    expect(await all(run, 'x')).toEqual([])
    expect(await codeOfRejection(run.stream('x', { from: -1 }).next())).toBe('invalid_input')
    expect(await codeOfRejection(run.stream('x', { from: 1.5 }).next())).toBe('invalid_input')
    expect(await eventTypes(run, 'stream')).toEqual([])
  })

  it('makes writers wait while the store is away, and refuses those who do not', async () => {
    let isAway = false
    const back = gate()
    const away = (store: Parameters<typeof wrapStore>[0]) =>
      wrapStore(store, { before: (act) => (isAway && act === 'commit' ? back.promise : undefined) })
    const reached: string[] = []
    const answer = workflow('answer', (ctx) =>
      ctx.step(
        'write',
        async (step) => {
          const stream = step.stream('big')
          isAway = true
          let isWaiting = false
          for (let i = 0; !isWaiting; i++) {
            const room = stream.write('x'.repeat(100_000))
            isWaiting = await Promise.race([
              room.then(() => false),
              new Promise<true>((resolve) => setTimeout(resolve, 20, true)),
            ])
            if (isWaiting) reached.push(`waits at ${i}`)
          }
          let room: Promise<void> | undefined
          try {
            for (;;) room = stream.write('x'.repeat(1_000_000))
          } catch (error) {
            reached.push((error as { code: string }).code)
          }
          isAway = false
          back.open()
          await room
          await stream.write('end')
        },
        noRetry,
      ),
    )
    const hf = await scene.openWrapped(away, { workflows: [answer] })
    const run = await hf.start(answer)
    await run.result()
    expect(reached).toEqual(['waits at 10', 'queue_full'])
    const items = await all(run, 'big')
    expect(items.at(-1)?.chunk).toBe('end')
    expect(offsetsOf(items)).toEqual(upTo(items.length))
  })

  it('is left by a reader whose signal is aborted, and says where to go on when the client is closed', async () => {
    const hang = gate()
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        await step.stream('tokens').write('a')
        await hang.promise
      }),
    )
    const hf = await scene.open({ workflows: [answer] })
    const reader = await scene.open({ worker: false })
    await hf.start(answer, undefined, { id: 'r' })
    const run = await reader.runs.get('r')
    const leaving = new AbortController()
    const seen: unknown[] = []
    for await (const { chunk } of run.stream('tokens', { signal: leaving.signal })) {
      seen.push(chunk)
      setTimeout(() => leaving.abort(), 5)
    }
    expect(seen).toEqual(['a'])
    const stream = run.stream('tokens')
    await stream.next()
    const refused = expect(stream.next()).rejects.toMatchObject({ code: 'closed', details: { from: 1 } })
    await reader.close()
    await refused
    hang.open()
  })

  it('moves with its thread, and goes when the thread is deleted', async () => {
    const answer = workflow('answer', (ctx) =>
      ctx.step(
        'write',
        async (step) => {
          for (let i = 0; i < 200; i++) await step.stream('tokens').write({ i, attempt: step.attempt })
          if (step.attempt === 1) throw new Error('again')
        },
        atOnce,
      ),
    )
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer, undefined, { id: 'r' })
    await run.result()
    const before = await all(run, 'tokens')
    expect(before.length).toBe(401)
    const bundle = JSON.parse(JSON.stringify(await hf.debug.export('r')))
    await hf.as('ann').debug.import(bundle)
    expect(await all(await hf.as('ann').runs.get('r'), 'tokens')).toEqual(before)
    await hf.thread('r').delete()
    expect(await codeOfRejection(all(run, 'tokens'))).toBe('thread_deleted')
    expect((await all(await hf.as('ann').runs.get('r'), 'tokens')).length).toBe(401)
  })

  it('of a run that failed goes on when the run is retried', async () => {
    let isBroken = true
    const answer = workflow('answer', async (ctx) => {
      await ctx.stream('tokens').write('a')
      await ctx.step(
        'write',
        async (step) => {
          await step.stream('tokens').write(isBroken ? 'broken' : 'b')
          if (isBroken) throw new Error('broken')
        },
        noRetry,
      )
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await failureOf(run)
    expect(shown(await all(run, 'tokens'))).toBe('a')
    isBroken = false
    await run.retry()
    await run.result()
    expect(shown(await all(run, 'tokens'))).toBe('ab')
  })

  it('of a run that is retried or rolled back says what it says now, not what it said then', async () => {
    let model = 'bad'
    const answer = workflow('answer', async (ctx) => {
      const stream = ctx.stream('tokens')
      await stream.write('a ')
      await ctx.step('kept', (step) => step.stream('tokens').write('kept '))
      await ctx.checkpoint('kept')
      const said = await ctx.step('say', async (step) => {
        await step.stream('tokens').write(`${model} `)
        return model
      })
      await stream.write(said === 'bad' ? 'sorry ' : 'fine ')
      if (said === 'bad') throw new Error('no good')
    })
    const hf = await scene.open({ workflows: [answer] })
    const run = await hf.start(answer)
    await failureOf(run)
    expect(
      shown(await all(run, 'tokens'))
        .split(' ')
        .sort()
        .join(' ')
        .trim(),
    ).toBe('a bad kept sorry')
    model = 'good'
    await run.rollback('kept')
    await becomes(run, 'paused')
    await run.resume()
    await run.result()
    const items = await all(run, 'tokens')
    expect(offsetsOf(items)).toEqual(upTo(items.length))
    const kept = items.filter(({ isAborted }) => !isAborted).map(({ chunk }) => chunk)
    expect(kept).toEqual(['kept ', 'a ', 'good ', 'fine '])
  })
})

onEverySharedStore('a stream after kill -9', (scene) => {
  it('is void as far as the killed step wrote it, for a reader that was there and for one that comes later', async () => {
    const answer = workflow('answer', (ctx) =>
      ctx.step('write', async (step) => {
        for (const word of ['a', 'whole', 'answer']) await step.stream('tokens').write(word)
      }),
    )
    const program = startProgram('write-and-hang', scene.url)
    await program.said('written')
    const reader = await scene.open({ worker: false })
    const run = await reader.runs.get('answer')
    await vi.waitUntil(async () => (await run.stream('tokens', { signal: AbortSignal.timeout(200) }).next()).done !== true)
    const live: StreamItem[] = []
    for await (const item of run.stream('tokens')) {
      live.push(item)
      if (item.chunk !== 'an') continue
      await program.kill()
      scene.outlastKilled()
      await scene.open({ workflows: [answer] })
    }
    expect(live.map(({ chunk, isAborted }) => (isAborted ? 'void' : chunk))).toEqual([
      'half',
      'an',
      'void',
      'a',
      'whole',
      'answer',
    ])
    expect(offsetsOf(live)).toEqual(upTo(6))
    const late = await all(run, 'tokens')
    expect(shown(late)).toBe(shown(live))
    expect(late.filter(({ isAborted }) => isAborted).map(({ offset }) => offset)).toEqual([0, 1, 2])
  })
})
