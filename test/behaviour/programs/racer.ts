import { appendFileSync } from 'node:fs'
import { type Workflow, workflow } from 'holdfast'

export interface Race {
  readonly winner: string
  readonly all: readonly string[]
  readonly order: readonly string[]
  readonly values: readonly unknown[]
}

/** Two steps at a time; `first` says which of them ends first. Each body leaves a line in the file. `atTheEnd` is the last step. */
export function makeRacer(
  file: string,
  atTheEnd: () => Promise<void>,
): Workflow<{ first: 'a' | 'b' }, Race, Record<string, unknown>> {
  return workflow('racer', async (ctx, { first }: { first: 'a' | 'b' }) => {
    const order: string[] = []
    const values = [ctx.now(), ctx.random(), ctx.uuid()]
    let release = () => {}
    const firstIsDone = new Promise<void>((resolve) => {
      release = resolve
    })
    const racer = async (name: 'a' | 'b') => {
      const result = await ctx.step(name, async () => {
        if (name !== first) await firstIsDone
        appendFileSync(file, `${name}\n`)
        return name
      })
      order.push(name)
      if (name === first) release()
      return result
    }
    const both = [racer('a'), racer('b')]
    const winner = await Promise.race(both)
    const all = await Promise.all(both)
    await ctx.step(`after ${winner}`, () => appendFileSync(file, `after ${winner}\n`))
    await ctx.step('end', atTheEnd)
    return { winner, all, order, values }
  })
}
