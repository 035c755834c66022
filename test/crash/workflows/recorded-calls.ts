import { type Context, type EffectOptions, type StepHandle, type StepOptions, state } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'

/** The state of the threads under test. */
export interface Diary {
  count: number
  /** In the order in which they reached the log. */
  entries: string[]
  values: Values | null
}

export interface Values {
  readonly uuid: string
  readonly at: number
  readonly chance: number
}

export const diary = state<Diary>({ version: 1, initial: () => ({ count: 0, entries: [], values: null }) })

/** How an effect declares what happens when its outcome is unknown. */
export const effectClasses = ['idempotent', 'check', 'neither'] as const
export type EffectClass = (typeof effectClasses)[number]

/** Steps and effects that write to the journal when their body is entered and when the function has their result. */
export function recordedCallsOf(services: TestServices) {
  /** `tape` distinguishes the calls of one continuation from those of the next. */
  function on(ctx: Context<Diary>, tape = 1) {
    const body = (path: string, attempt: number) => services.body({ run: ctx.runId, tape, path, attempt })
    const ack = (path: string) => services.ack({ run: ctx.runId, tape, path })

    async function step<T>(
      path: string,
      run: (handle: StepHandle<Diary>) => Promise<T> | T,
      options?: StepOptions<T, 'fail' | 'pause'>,
    ): Promise<T> {
      const counted = (handle: StepHandle<Diary>) => {
        body(path, handle.attempt)
        return run(handle)
      }
      const value = await ctx.step(path.slice(path.lastIndexOf('/') + 1), counted, options)
      if (options?.checkpoint !== false) ack(path)
      return value
    }

    async function once<T>(name: string, options: EffectOptions<T>): Promise<T> {
      const run: EffectOptions<T>['run'] = (key, effect) => {
        body(name, effect.attempt)
        return options.run(key, effect)
      }
      const value = await ctx.once(name, { ...options, run })
      ack(name)
      return value
    }

    return { body, ack, step, once }
  }

  /** An effect of a class that sends to the provider. */
  function sending(name: string, effectClass: EffectClass, body?: unknown): EffectOptions<{ receipt: string }> {
    return {
      run: (key) => services.send({ name, key, body, dedupes: effectClass === 'idempotent' }),
      retry: { attempts: 3, minMs: 1, maxMs: 2 },
      ...(effectClass === 'idempotent' && { idempotent: true }),
      ...(effectClass === 'check' && {
        check: async (key: string) => {
          const { happened, receipt } = await services.provider.look(key)
          return happened ? { happened, result: { receipt: receipt as string } } : { happened: false }
        },
      }),
    }
  }

  return { on, sending }
}

export type RecordedCalls = ReturnType<typeof recordedCallsOf>

export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
