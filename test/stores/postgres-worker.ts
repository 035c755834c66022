// A worker of the tests of the Postgres store: it tells when it is inside a transaction, where it is stopped. Once it goes on, it ends
// with its input. The argument is the URL.

import { open } from 'holdfast'
import { makeDeposit } from './postgres-deposit.ts'

const deposit = makeDeposit(() => console.log('in the body'))
const hf = await open(process.argv[2], { logger: false, workflows: [deposit], worker: { leaseMs: 1_000 } })
await new Promise((resolve) => process.stdin.once('end', resolve).resume())
await hf.close()
