// Speed on Postgres and Redis: a lone run's step, and 500 runs at once, against raw writes on one connection
//
// Options: --store=postgres or --store=redis, --slices=N (default 9), --strict (a missed target is exit code 1).

import { printLoad, printMachine } from './measuring/machine.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { measurePostgres } from './stores/postgres.ts'
import { measureRedis } from './stores/redis.ts'

const sliceCount = Math.max(7, Number(optionOf('slices') ?? 9))
const chosen = optionOf('store')
const scorecard = new Scorecard()

printMachine()
for (const [name, measure] of Object.entries({ postgres: measurePostgres, redis: measureRedis })) {
  if (chosen === undefined || chosen === name) await measure({ sliceCount, scorecard })
}
console.log(`
not measured
  A network between this process and the server, several workers on one server, steps that do work, large results, states, effects.`)
printLoad('end')
scorecard.print()

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
