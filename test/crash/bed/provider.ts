import { createConnection, createServer, type Server } from 'node:net'
import { createInterface } from 'node:readline'

/** One request to the provider, as it arrived. */
export interface Call {
  readonly processNumber: number
  readonly pid: number
  readonly name: string
  readonly key: string
  readonly body: unknown
}

type Request =
  | (Call & { readonly act: 'send'; readonly account: string; readonly dedupes: boolean })
  | { readonly act: 'look'; readonly account: string; readonly key: string }

interface Answer {
  readonly happened: boolean
  readonly receipt?: string
}

/** What the provider has received and done for one scenario. */
export class Account {
  readonly calls: Call[] = []
  /** How often it acted, by key. */
  readonly acted = new Map<string, number>()
  /** Called before a call is acted on, and before it is answered; true: there is no answer. */
  onCall: ((call: Call, when: 'received' | 'acted') => boolean) | undefined

  happened(key: string): boolean {
    return this.acted.has(key)
  }

  send(call: Call, dedupes: boolean): Answer | null {
    this.calls.push(call)
    if (this.onCall?.(call, 'received')) return null
    if (!dedupes || !this.happened(call.key)) this.acted.set(call.key, (this.acted.get(call.key) ?? 0) + 1)
    if (this.onCall?.(call, 'acted')) return null
    return receiptFor(call.key)
  }
}

/** A third party with side effects: a server in a process that is not killed. One account per scenario. */
export class Provider {
  readonly #server: Server
  readonly #accounts = new Map<string, Account>()

  private constructor(server: Server) {
    this.#server = server
  }

  static async start(): Promise<Provider> {
    const server = createServer((socket) => {
      socket.on('error', () => {}) // The other side was killed.
      const lines = createInterface({ input: socket })
      // The other side may be killed in the middle of a line; the interface reports it a second time.
      lines.on('error', () => {})
      lines.on('line', (line) => {
        const answer = provider.#answer(JSON.parse(line) as Request)
        if (answer !== null) socket.write(`${JSON.stringify(answer)}\n`)
      })
    })
    const provider = new Provider(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    server.unref()
    return provider
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port
  }

  open(name: string): Account {
    const account = new Account()
    this.#accounts.set(name, account)
    return account
  }

  forget(name: string): void {
    this.#accounts.delete(name)
  }

  close(): void {
    this.#server.close()
  }

  #answer(request: Request): Answer | null {
    const account = this.#accounts.get(request.account) ?? this.open(request.account)
    if (request.act === 'look') return account.happened(request.key) ? receiptFor(request.key) : { happened: false }
    const { processNumber, pid, name, key, body } = request
    return account.send({ processNumber, pid, name, key, body }, request.dedupes)
  }
}

/** How a process under test reaches the provider: one connection per call. */
export class ProviderClient {
  readonly #where: { readonly port: number; readonly account: string; readonly processNumber: number }

  constructor(where: { port: number; account: string; processNumber: number }) {
    this.#where = where
  }

  async send(call: { name: string; key: string; body?: unknown; dedupes?: boolean }): Promise<{ receipt: string }> {
    const { account, processNumber } = this.#where
    const { name, key, body = null, dedupes = false } = call
    const answer = await this.#ask({ act: 'send', account, processNumber, pid: process.pid, name, key, body, dedupes })
    return { receipt: answer.receipt as string }
  }

  look(key: string): Promise<Answer> {
    return this.#ask({ act: 'look', account: this.#where.account, key })
  }

  #ask(request: Request): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const socket = createConnection({ port: this.#where.port, host: '127.0.0.1', noDelay: true })
      let text = ''
      socket.on('connect', () => socket.write(`${JSON.stringify(request)}\n`))
      socket.on('data', (chunk) => {
        text += chunk
        if (!text.endsWith('\n')) return
        socket.destroy()
        resolve(JSON.parse(text) as Answer)
      })
      socket.on('error', reject)
      socket.on('close', () => reject(new Error('the provider hung up')))
    })
  }
}

function receiptFor(key: string): Answer {
  return { happened: true, receipt: `receipt for ${key}` }
}
