import { expect, it } from 'vitest'
import { startProgram } from './programs.ts'

it('cancelling a run does not bring the process down through a promise that its function does not await yet', async () => {
  const program = startProgram('cancel-beside-others')
  expect(await program.said('ended')).toEqual(['cancelled', 'done'])
  expect(await program.ended).toBe(0)
})

it('a call that comes after the end of its run does not, either', async () => {
  const program = startProgram('late-call-beside-others')
  expect(await program.said('ended')).toEqual(['failed', 'done'])
  expect(await program.ended).toBe(0)
})

it('a timer that a function left behind does not, either: what it calls is told of in the log and does nothing', async () => {
  const program = startProgram('late-timer-beside-others')
  const told = '"late" "now" "random" "tokens" "update" "usage" "uuid"'
  expect(await program.said('ended')).toEqual(['completed', 'failed', 'cancelled', 'completed', 'failed', 'done', told])
  expect(await program.ended).toBe(0)
})

it("a rejection of somebody else's ends the process as ever", async () => {
  const program = startProgram('cancel-beside-others', 'foreign')
  await program.said('ended')
  expect(await program.ended).toBe(1)
})
