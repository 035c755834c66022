// Sends a mail as an effect and is killed between sending and recording. Arguments: URL, provider's file, declaration.
import { open } from 'holdfast'
import { makeMailer } from './mailer.ts'

const [url, file, declaration] = process.argv.slice(2) as [string, string, 'idempotent' | 'check' | 'neither']
const mailer = makeMailer(file, declaration, () => process.kill(process.pid, 'SIGKILL'))
const hf = await open(url, { workflows: [mailer] })
await hf.start(mailer, { to: 'alice' }, { id: 'mail-run' })
