import { workflow } from 'holdfast'

/** A run that changes a row of the user's in a transaction, and tells when it holds the row. */
export function makeDeposit(onHeld: () => void) {
  return workflow('deposit', (ctx) =>
    ctx.transaction('add', async (tx) => {
      const [row] = await tx.query<{ balance: number }>('UPDATE accounts SET balance = balance + 1 RETURNING balance')
      onHeld()
      // Long enough to be stopped in.
      await new Promise((resolve) => setTimeout(resolve, 500))
      return row?.balance
    }),
  )
}
