// node test/mutants/main.ts [--why] [NAME…]: plants faults in copies of the sources and sees whether the tests see them.

import { runMutants } from './run-mutants.ts'

const args = process.argv.slice(2)
const problems = await runMutants(
  args.filter((arg) => arg !== '--why'),
  { isTalkative: args.includes('--why') },
)
for (const problem of problems) console.error(problem)
process.exitCode = problems.length === 0 ? 0 : 1
