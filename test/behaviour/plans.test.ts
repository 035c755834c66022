import { HoldfastError, plan, recoveryPlan, state } from 'holdfast'
import { describe, expect, it } from 'vitest'
import { patience } from '../patience.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, failureOf, gate } from './runs.ts'
import { onEverySharedStore, onEveryStore } from './stores.ts'

const once = { attempts: 1 }
const twice = { attempts: 2, minMs: 1 }

interface Report {
  readonly topic: string
  readonly sources?: readonly string[]
  readonly trends?: string
  readonly charts?: number
  readonly file?: string
}
const reportState = state<Report>({ version: 1, initial: () => ({ topic: 'nothing' }) })

onEveryStore('a plan', ({ open, openMortal, advance }) => {
  it('is a workflow: its steps run in order over the state, and its output is the state', async () => {
    const report = plan('report', { state: reportState })
      .step('gather', async ({ topic }, ctx) => ({ sources: [await ctx.step('fetch', () => `about ${topic}`)] }))
      .step('look', () => {})
      .step('analyze', ({ sources }) => ({ trends: `trends in ${sources?.length}` }))
    const hf = await open({ workflows: [report] })
    const run = await hf.start('report', { topic: 'refunds' }, { id: 'r' })
    const output = { topic: 'refunds', sources: ['about refunds'], trends: 'trends in 1' }
    expect(await run.result()).toEqual(output)
    expect(await hf.thread('r').state()).toEqual(output)
    expect((await run.info()).completedSteps).toEqual(['gather/fetch', 'gather', 'look', 'analyze'])
    expect(await hf.thread('other').run(report)).toEqual({
      ...{ topic: 'nothing', sources: ['about nothing'], trends: 'trends in 1' },
    })
  })

  it('checkpoints the patch of a step in the same commit as its result', async () => {
    const report = plan('report', { state: reportState })
      .step('gather', () => ({ sources: ['a'] }))
      .step('analyze', () => ({ trends: 'up' }))
    const hf = await open()
    await hf.run(report, { topic: 'x' }, { id: 'r' })
    const thread = hf.thread('r')
    const states: Record<string, unknown> = {}
    for (const { step, checkpoint } of await thread.checkpoints()) if (step) states[step] = await thread.stateAt(checkpoint)
    expect(states).toEqual({
      gather: { topic: 'x', sources: ['a'] },
      analyze: { topic: 'x', sources: ['a'], trends: 'up' },
    })
  })

  it('goes on at the step where its worker died', async () => {
    const ran: string[] = []
    const report = plan('report', { state: reportState })
      .step('gather', () => {
        ran.push('gather')
        return { sources: ['a'] }
      })
      .step('analyze', async (_, ctx) => {
        await ctx.step('one', () => void ran.push('one'))
        await ctx.step('two', () => void ran.push('two'))
        return { trends: 'up' }
      })
      .step('send', async (_, ctx) => ({ file: await ctx.once('mail', { run: () => `mail ${ran.push('mail')}` }) }))
    const { hf, dead } = await openMortal({ workflows: [report] }, { before: 'effect_intended' })
    await hf.start(report, { topic: 'x' }, { id: 'r' })
    await dead
    const heir = await open({ workflows: [report] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toEqual({ topic: 'x', sources: ['a'], trends: 'up', file: 'mail 4' })
    expect(ran).toEqual(['gather', 'one', 'two', 'mail'])
  })

  it('whose gather step got 3 of 5 sources asks only for the other two when it is tried again', async () => {
    const asked: string[] = []
    const report = plan('report', { state: reportState }).step(
      'gather',
      async (_, ctx) => ({
        sources: await ctx.map(
          'source',
          ['news', 'sales', 'support', 'web', 'survey'],
          (name, _index, step) => {
            asked.push(name)
            if (step.attempt === 1 && (name === 'sales' || name === 'web')) throw new Error(`${name} timed out`)
            return `data of ${name}`
          },
          { retry: once },
        ),
      }),
      { retry: twice },
    )
    const hf = await open()
    const { sources } = await hf.run(report, { topic: 'x' })
    expect(sources).toEqual(['news', 'sales', 'support', 'web', 'survey'].map((name) => `data of ${name}`))
    expect(asked.slice(5).sort()).toEqual(['sales', 'web'])
  })

  it('falls back, skips and fails as its steps say; retry() takes it up at the step that failed', async () => {
    const ran: string[] = []
    let isDown = true
    const fail = (name: string) => () => {
      ran.push(name)
      throw new Error(`${name} failed`)
    }
    const report = plan('report', { state: reportState, retry: once })
      .step('analyze', fail('analyze'), {
        fallback: async ({ topic }, ctx, error) => ({
          trends: await ctx.step('sample', () => `a sample of ${topic}, as ${error.message}`),
        }),
      })
      .step('charts', fail('charts'), { onFailure: 'skip' })
      .step('compile', () => {
        ran.push('compile')
        if (isDown) throw new Error('no printer')
        return { file: 'report.pdf' }
      })
    const hf = await open()
    const run = await hf.start(report, { topic: 'x' })
    expect(await failureOf(run)).toMatchObject({ message: 'no printer' })
    expect((await run.info()).currentStep).toBe('compile')
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({
      ...{ topic: 'x', trends: 'a sample of x, as analyze failed', file: 'report.pdf' },
    })
    expect(ran).toEqual(['analyze', 'charts', 'compile', 'compile'])
  })

  it('pauses at a step that says so, and goes on there when it is resumed', async () => {
    let isDown = true
    const report = plan('report', { state: reportState, retry: once })
      .step('gather', () => ({ sources: ['a'] }))
      .step(
        'send',
        () => {
          if (isDown) throw new Error('no line')
          return { file: 'sent' }
        },
        { onFailure: 'pause' },
      )
    const hf = await open()
    const run = await hf.start(report, { topic: 'x' })
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'retries', currentStep: 'send', completedSteps: ['gather'] })
    isDown = false
    await run.resume()
    expect(await run.result()).toEqual({ topic: 'x', sources: ['a'], file: 'sent' })
  })

  it('runs the steps of a group at a time, merges what each returns, and keeps what succeeded when one fails', async () => {
    const ran: string[] = []
    const both = gate()
    let met = 0
    let isDown = true
    const meet = async () => {
      if (++met === 2) both.open()
      await both.promise
    }
    const report = plan('report', { state: reportState, retry: once })
      .step('gather', () => ({ sources: ['a'] }))
      .parallel([
        [
          'analyze',
          async ({ sources }) => {
            ran.push('analyze')
            await meet()
            return { trends: `trends in ${sources?.length}` }
          },
          { weight: 3 },
        ],
        [
          'charts',
          async () => {
            ran.push('charts')
            await meet()
            if (isDown) throw new Error('no ink')
            return { charts: 2 }
          },
        ],
      ])
      .step('compile', ({ trends, charts }) => ({ file: `${trends} and ${charts} charts` }))
    const hf = await open()
    const run = await hf.start(report, { topic: 'x' })
    expect(await failureOf(run)).toMatchObject({ message: 'no ink' })
    isDown = false
    await run.retry()
    expect(await run.result()).toMatchObject({ file: 'trends in 1 and 2 charts' })
    expect(ran.sort()).toEqual(['analyze', 'charts', 'charts'])
  })

  it('undoes its steps, the last first, when it is cancelled', async () => {
    const undone: unknown[] = []
    const report = plan('report', { state: reportState })
      .step('gather', () => ({ sources: ['a'] }), { undo: ({ sources }) => undone.push(sources) })
      .step('compile', () => ({ file: 'f' }), { undo: ({ file }) => undone.push(file) })
      .step('wait', (_, ctx) => ctx.sleep(3_600_000))
    const hf = await open()
    const run = await hf.start(report, { topic: 'x' })
    await becomes(run, 'waiting')
    await run.cancel()
    expect(undone).toEqual(['f', ['a']])
  })

  it('abandons a step that takes too long, and tries it again', async () => {
    let tries = 0
    const report = plan('report', { state: reportState }).step(
      'gather',
      async (_, ctx) => {
        tries++
        // Neither looks at its signal nor comes back.
        if (tries === 1) await new Promise(() => {})
        return { sources: [await ctx.step('fetch', () => 'a')] }
      },
      { timeoutMs: patience(300), retry: twice },
    )
    const hf = await open()
    expect(await hf.run(report, { topic: 'x' })).toEqual({ topic: 'x', sources: ['a'] })
  })

  it('takes only objects as patches and as input, and merges any key as a key', async () => {
    const hf = await open()
    const wrong = plan<Report>('wrong', { retry: once }).step('number', () => 7 as never)
    expect(await failureOf(await hf.start(wrong))).toMatchObject({ code: 'invalid_input' })
    expect(await failureOf(await hf.start(wrong, 'text' as never))).toMatchObject({ code: 'invalid_input' })
    const odd = JSON.parse('{"__proto__": {"isAdmin": true}}') as Record<string, unknown>
    const merged = await hf.run(
      plan('odd').step('merge', () => odd),
      { a: 1 },
    )
    expect(Object.keys(merged).sort()).toEqual(['__proto__', 'a'])
    expect((merged as { isAdmin?: boolean }).isAdmin).toBeUndefined()
    expect(
      await failureOf(
        await hf.start(
          plan({ name: 'list', state: state({ version: 1, initial: () => [1] as number[] }), retry: once }).step(
            'merge',
            () => ({ length: 3 }) as never,
          ),
        ),
      ),
    ).toMatchObject({ code: 'invalid_input' })
  })

  it('checks its input by its schema when it is started', async () => {
    const schema = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) =>
          typeof (value as { topic?: unknown } | null)?.topic === 'string'
            ? { value: value as { topic: string } }
            : { issues: [{ message: 'a topic is needed' }] },
      },
    } as const
    const report = plan({ name: 'report', state: reportState, input: schema }).step('none', () => {})
    const hf = await open()
    expect(await codeOfRejection(hf.start(report, {} as never))).toBe('invalid_input')
    expect(await hf.run(report, { topic: 'x' })).toEqual({ topic: 'x' })
  })
})

onEverySharedStore('a plan in processes of its own', (scene) => {
  it('is watched from outside, and goes on in the middle of a step when its process is killed', async () => {
    const hf = await scene.open({ worker: false })
    const run = await hf.start<unknown, { sources: string[]; trends: number }>('work')
    const fractions: unknown[] = []
    const victim = startProgram('plan-worker', scene.url, 'hangs')
    for await (const { type, data } of run.watch()) {
      if (type === 'progress_reported') fractions.push(data?.['fraction'])
      if (data?.['fraction'] === 0.875) {
        await victim.kill()
        startProgram('plan-worker', scene.url, 'goes on')
      }
    }
    const { sources, trends } = await run.result()
    expect({ sources, trends }).toEqual({ sources: ['a', 'b'].map((name) => `${name} by ${victim.pid}`), trends: 2 })
    expect(await run.info()).toMatchObject({ status: 'completed', progress: { fraction: 1 } })
    expect((await run.info()).stepAttempts).toMatchObject({ gather: 1, analyze: 1, 'analyze/load': 1 })
    expect(fractions).toEqual([0.75, 0.875, 1])
  })
})

describe('a plan that can not be meant', () => {
  const report = plan('report').step('gather', () => {})
  it.each([
    ['two steps of one name', () => report.step('gather', () => {})],
    [
      'two steps of one name in a group',
      () =>
        report.parallel([
          ['a', () => {}],
          ['a', () => {}],
        ]),
    ],
    ['a step without a function', () => report.step('a', undefined as never)],
    ['a weight of nothing', () => report.step('a', () => {}, { weight: 0 })],
    ['no attempt at all', () => report.step('a', () => {}, { retry: { attempts: 0 } })],
    ['a policy that nobody knows', () => report.step('a', () => {}, { onFailure: 'explode' as never })],
    ['a group without steps', () => report.parallel([])],
    ['a group of something else', () => report.parallel(['a'] as never)],
  ])('(%s) is refused when it is written', (_, make) => {
    expect(make).toThrow(HoldfastError)
    expect(make).toThrow(expect.objectContaining({ code: 'invalid_input' }))
  })

  it('leaves the plan it was added to as it was', () => {
    const longer = report.step('analyze', () => {})
    expect(report.stages.flat().map(({ name }) => name)).toEqual(['gather'])
    expect(longer.stages.flat().map(({ name }) => name)).toEqual(['gather', 'analyze'])
  })
})

describe('the recovery plan', () => {
  it('says for each step what can fail, what that means and what happens then', () => {
    const analyzeSample = () => {}
    const report = plan('report', { version: 2 })
      .step('gather', () => {}, { retry: { attempts: 5 }, timeoutMs: 30_000, canFail: 'A source is down' })
      .parallel([
        ['analyze', () => {}, { fallback: analyzeSample, retry: once }],
        ['charts', () => {}, { onFailure: 'skip', impact: 'A report without charts' }],
      ])
      .step('ask | "who"', () => {}, { onFailure: 'pause', retry: { attempts: 2, minMs: 90_000, maxMs: 90_000, jitter: false } })
      .step('send', () => {}, { fallback: () => {}, onFailure: 'pause' })
    expect(recoveryPlan(report)).toMatchInlineSnapshot(`
      "# Recovery plan: report (version 2)

      | # | Failure point | What can fail | Impact | Recovery action | Checkpoint | Resume behaviour | Notification |
      | --- | --- | --- | --- | --- | --- | --- | --- |
      | 1 | \`gather\` | A source is down; it takes longer than 30 s; its worker dies during it 3 times | The run fails before \`analyze\`, \`charts\`, \`ask \\| "who"\`, \`send\` | 5 attempts, up to 1 s to 8 s apart, then fail; \`run.retry()\` retries it | Start of the run | Continues at \`gather\`; results recorded inside it are kept | \`run_failed\` |
      | 2a | \`analyze\` | It throws; its worker dies during it 3 times | The result is that of the fallback | 1 attempt, then fallback \`analyzeSample\`, then fail; \`run.retry()\` retries it | After \`gather\` | Continues at \`analyze\`; results recorded inside it are kept | \`step_failed\` in the log; \`run_failed\` if the fallback fails too |
      | 2b | \`charts\` | It throws; its worker dies during it 3 times | A report without charts | 3 attempts (calls inside have their own), up to 1 s to 2 s apart, then skip it | After \`gather\` | Continues at \`charts\`; results recorded inside it are kept | \`step_failed\` in the log |
      | 3 | \`ask \\| "who"\` | It throws; its worker dies during it 3 times | The run is paused until a person resumes it | 2 attempts, 90 s apart, then pause; \`run.resume()\` retries it | After \`analyze\`, \`charts\` | Continues at \`ask \\| "who"\`; results recorded inside it are kept | \`run_paused\` |
      | 4 | \`send\` | It throws; its worker dies during it 3 times | The result is that of the fallback | 3 attempts (calls inside have their own), up to 1 s to 2 s apart, then fallback, then pause; \`run.resume()\` retries it | After \`ask \\| "who"\` | Continues at \`send\`; results recorded inside it are kept | \`step_failed\` in the log; \`run_paused\` if the fallback fails too |

      \`\`\`mermaid
      flowchart TD
        start([start])
        step1["gather"]
        start --> step1
        step1 -. fails .-> failed([failed])
        subgraph group2 ["in parallel"]
          step2a["analyze"]
          step2af["analyze: fallback"]
          step2a -. fails .-> step2af
          step2b["charts"]
        end
        step1 --> step2a
        step2af -. fails .-> failed([failed])
        step1 --> step2b
        step3["ask | #quot;who#quot;"]
        step2a --> step3
        step2af --> step3
        step2b -- done or skipped --> step3
        step3 -. fails .-> step3p[/paused/]
        step3p -. resumed .-> step3
        step4["send"]
        step4f["send: fallback"]
        step4 -. fails .-> step4f
        step3 --> step4
        step4f -. fails .-> step4p[/paused/]
        step4p -. resumed .-> step4
        step4 --> completed([completed])
        step4f --> completed([completed])
      \`\`\`
      "
    `)
  })
})
