import { type AnyWorkflow, type StepHandle, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls, wait } from './recorded-calls.ts'

/** What is written to the stream, by the function itself and by its step. */
export const transcript = { name: 'transcript', ofFunction: ['begin', 'end'], ofStep: ['one', 'two', 'three', 'four'] } as const

/** Sends two notifications, when it asks and when it has ended, and writes a stream. */
export function notifiesOthers({ on }: RecordedCalls): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'notifiesOthers', state: diary }, async (ctx) => {
    const [first, last] = transcript.ofFunction
    await ctx.stream(transcript.name).write(first)
    const writeWords = async (handle: StepHandle<Diary>) => {
      for (const [index, word] of transcript.ofStep.entries()) {
        await handle.stream(transcript.name).write(word)
        // Longer than chunks are buffered: some are written before the result, or before the failure.
        if (index === 1) await wait(60)
        if (index === 2 && handle.attempt === 1) throw new Error('failed in the middle')
      }
      return transcript.ofStep.length
    }
    const words = await on(ctx).step('write_words', writeWords, { retry: { attempts: 3, minMs: 1, maxMs: 2 } })
    await ctx.stream(transcript.name).write(last)
    return { words, name: await ctx.ask('name', { question: 'Who is reading?' }) }
  })
}
