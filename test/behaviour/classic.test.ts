import { workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { eventTypes, failureOf } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** Three steps, of which the second throws the first time. */
function makeReport() {
  const ran: string[] = []
  let isModelDown = true
  const report = workflow('report', async (ctx, input: { topic: string }) => {
    const data = await ctx.step('load_data', () => {
      ran.push('load_data')
      return [1, 2, 3]
    })
    const summary = await ctx.step(
      'summarize',
      () => {
        ran.push('summarize')
        if (isModelDown) throw new Error('the model is down')
        return `${input.topic}: ${data.join(' ')}`
      },
      { retry: { attempts: 1 } },
    )
    return ctx.step('write_report', () => {
      ran.push('write_report')
      return `# ${summary}`
    })
  })
  return {
    report,
    ran,
    repairModel: () => {
      isModelDown = false
    },
  }
}

onEveryStore('the classic', ({ open }) => {
  it('a run that failed at its second step goes on there with retry(), and the first step does not execute again', async () => {
    const { report, ran, repairModel } = makeReport()
    const hf = await open({ workflows: [report] })
    const run = await hf.start(report, { topic: 'refunds' }, { id: 'refunds-2026-11' })
    const failure = await failureOf(run)
    expect(failure.message).toBe('the model is down')

    const info = await run.info()
    expect(info).toMatchObject({
      id: 'refunds-2026-11',
      threadId: 'refunds-2026-11',
      owner: '',
      workflow: 'report',
      version: 1,
      status: 'failed',
      currentStep: 'summarize',
      completedSteps: ['load_data'],
      stepAttempts: { load_data: 1, summarize: 1 },
    })
    expect(info.error?.message).toBe('the model is down')
    expect(info.finishedAt).toBeGreaterThanOrEqual(info.startedAt as number)

    repairModel()
    await run.retry()
    expect(await run.result()).toBe('# refunds: 1 2 3')
    expect(ran).toEqual(['load_data', 'summarize', 'summarize', 'write_report'])
    expect(await eventTypes(run, 'step')).toEqual([
      'step_started',
      'step_completed',
      'step_started',
      'step_failed',
      'step_started',
      'step_completed',
      'step_started',
      'step_completed',
    ])
    expect(await eventTypes(run, 'run')).toEqual(['run_queued', 'run_started', 'run_failed', 'run_retried', 'run_completed'])
    const done = await run.info()
    expect(done).toMatchObject({
      status: 'completed',
      completedSteps: ['load_data', 'summarize', 'write_report'],
      stepAttempts: { load_data: 1, summarize: 2, write_report: 1 },
    })
    expect(done.error).toBeUndefined()
    expect(done.currentStep).toBeUndefined()
  })

  it('a failed run says run_failed with the error of the step as its cause, and that retry() helps', async () => {
    const { report } = makeReport()
    const hf = await open({ workflows: [report] })
    const error = await hf.run(report, { topic: 'refunds' }).catch((thrown: Error & { code?: string }) => thrown)
    expect(error).toMatchObject({ name: 'HoldfastError', code: 'run_failed' })
    expect((error as Error).message).toContain('retry()')
    expect((error as Error).cause).toMatchObject({ name: 'Error', message: 'the model is down' })
  })

  it('a failed run goes on in a client that is opened later', async () => {
    const { report, ran, repairModel } = makeReport()
    const first = await open({ workflows: [report] })
    await failureOf(await first.start(report, { topic: 'refunds' }, { id: 'r' }))
    await first.close()
    repairModel()
    const second = await open({ workflows: [report] })
    const run = await second.runs.get<string>('r')
    await run.retry()
    expect(await run.result()).toBe('# refunds: 1 2 3')
    expect(ran).toEqual(['load_data', 'summarize', 'summarize', 'write_report'])
  })

  it('every event of a run says when, of which step, at which attempt and how long', async () => {
    const { report, repairModel } = makeReport()
    repairModel()
    const hf = await open({ workflows: [report] })
    const run = await hf.start(report, { topic: 'refunds' })
    await run.result()
    const events = await run.events()
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    for (const event of events) {
      expect(event).toMatchObject({ runId: run.id, threadId: run.threadId, at: expect.any(Number) })
    }
    const completed = events.filter(({ type }) => type === 'step_completed')
    expect(completed.map(({ step, attempt }) => [step, attempt])).toEqual([
      ['load_data', 1],
      ['summarize', 1],
      ['write_report', 1],
    ])
    for (const { durationMs } of completed) expect(durationMs).toBeGreaterThanOrEqual(0)
    expect(completed[0]?.data).toEqual({ result: [1, 2, 3] })
    expect(events.at(-1)).toMatchObject({ type: 'run_completed', data: { output: '# refunds: 1 2 3' } })
    expect(await run.events({ after: 2, limit: 2 })).toEqual(events.slice(2, 4))
  })
})
