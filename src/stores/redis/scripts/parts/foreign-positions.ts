/**
 * How many positions at the end of a log that ends at `head` were not written under a lease, from the thread's field `foreign`. The first
 * record of an incarnation never was, because no run can be held before it. So most threads, those of one run, need no such field.
 */
export const foreignOf = `
local function foreign_of(field, base, head)
  if field then return tonumber(field) end
  return head == base + 1 and 1 or 0
end
`
