import { type AnyWorkflow, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls, wait } from './recorded-calls.ts'

/** Workflows that crash their process. */
export function deadlyWorkflows({ on }: RecordedCalls): AnyWorkflow[] {
  const poison = workflow<undefined, unknown, Diary>({ name: 'poison', state: diary }, () => process.exit(70))
  const killer = workflow<{ by: 'kill' | 'memory'; afterMs: number }, unknown, Diary>(
    { name: 'killer', state: diary },
    async (ctx, { by, afterMs }) => {
      const { step } = on(ctx)
      await step('harmless', () => 'harmless')
      const deadly = async () => {
        await wait(afterMs)
        if (by === 'kill') process.kill(process.pid, 'SIGKILL')
        const hoard: unknown[] = []
        for (;;) hoard.push(new Array(100_000).fill(hoard.length))
      }
      return await step('deadly', deadly, { fallback: (error) => `fallback after ${(error as { code?: string }).code}` })
    },
  )
  return [poison, killer]
}
