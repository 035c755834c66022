import { open } from 'holdfast'
import { support } from './support.ts'

// A process that answers: as many as you like may run, on SQLite on one machine, on Postgres and Redis on many.
await open(process.argv[2] ?? 'sqlite:agent.db', { workflows: [support] })
