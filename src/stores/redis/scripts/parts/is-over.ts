import { isTerminal, runStatuses } from '../../../../model/run.ts'

/** The statuses of a finished run. */
export const isOver = `
local is_over = { ${runStatuses
  .filter(isTerminal)
  .map((status) => `${status} = true`)
  .join(', ')} }
`
