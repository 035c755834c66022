import { absentFields, runFields } from '../../rows.ts'

/** Reads the row of a run. */
export const runRow = `
-- Returns the values of \`runFields\` in order, and a table of all fields as stored. A list with false where the run does not exist.
local function row_of(run)
  local found, r = call('HGETALL', P .. 'run:' .. run), {}
  if #found == 0 then return { false } end
  for i = 1, #found, 2 do r[found[i]] = found[i + 1] end
  return { ${runFields.map(valueInLua).join(', ')} }, r
end
`

function valueInLua(field: string): string {
  return `r['${field}'] or '${absentFields[field] ?? ''}'`
}
