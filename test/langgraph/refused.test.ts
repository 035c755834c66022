import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

it('a run that is refused ends with its error and leaves its process and the other runs alone', async () => {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [join(import.meta.dirname, 'refused-program.ts')])
  const { codes, lists } = JSON.parse(stdout) as { codes: string[]; lists: string[][] }
  for (const group of [codes.slice(0, 3), codes.slice(3)]) expect(group.sort()).toEqual(['conflict', 'conflict', 'done'])
  expect(lists.map((list) => list.length)).toEqual([1, 2])
  expect(stderr).toBe('')
})
