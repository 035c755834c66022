import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** Where a connection breaks: at the n-th message, from 1, that one side sends after the fault was set. */
export interface Fault {
  readonly side: 'client' | 'server'
  readonly at: number
  /** `cut`: both sides see the connection end, and the message does not arrive. `swallow`: it and all later ones vanish silently. */
  readonly kind: 'cut' | 'swallow'
  /** Counts only on a connection whose client has prepared a statement that contains this, from then on. */
  readonly after?: string
}

/** Stands between a store and the server, and breaks connections at a message of the Postgres protocol. */
export interface PostgresProxy {
  readonly url: string
  /** Breaks the next connection that gets that far. Later ones are whole again. */
  break(fault: Fault): void
  /** Whether the fault has happened. */
  readonly isBroken: boolean
  /** Cuts a connection at the message with which its client prepares a statement that contains this, so many times. */
  cutAtStatement(text: string, times: number): void
  /** How often that has still to happen. */
  readonly cutsLeft: number
  /** Refuses new connections, as a server does that is away. */
  refuse(isRefusing: boolean): void
  stop(): Promise<void>
}

export async function startProxy(serverUrl: string): Promise<PostgresProxy> {
  const target = new URL(serverUrl)
  const sockets = new Set<Socket>()
  let fault: Fault | null = null
  let seen = { client: 0, server: 0 }
  let isBroken = false
  let isRefusing = false
  let statement = ''
  let cutsLeft = 0

  const proxy = createServer((client) => {
    const server = connect(Number(target.port), target.hostname)
    let isSilent = false
    /** The fault to which this connection has come as far as it says. */
    let counted: Fault | null = null
    const end = () => {
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) {
      sockets.add(socket)
      // Message by message as they are: gathered by the kernel, each would wait for the answer to the one before.
      socket.setNoDelay(true)
      socket.on('error', end)
      socket.on('close', () => {
        sockets.delete(socket)
        end()
      })
    }
    if (isRefusing) end()
    const forward = (side: Fault['side'], to: Socket) => (message: Buffer) => {
      if (isSilent) return
      if (side === 'client' && cutsLeft > 0 && message.includes(statement)) {
        cutsLeft--
        isSilent = true
        return end()
      }
      if (fault !== null && (fault.after === undefined || (side === 'client' && message.includes(fault.after)))) counted = fault
      if (fault !== null && fault === counted && fault.side === side && ++seen[side] === fault.at) {
        const { kind } = fault
        fault = null
        isBroken = true
        isSilent = true
        if (kind === 'cut') end()
        return
      }
      to.write(message)
    }
    client.on('data', splitMessages(forward('client', server), { hasStartup: true }))
    server.on('data', splitMessages(forward('server', client), { hasStartup: false }))
  }).listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  const url = new URL(serverUrl)
  url.port = String((proxy.address() as AddressInfo).port)

  return {
    url: url.href,
    break(next) {
      fault = next
      seen = { client: 0, server: 0 }
      isBroken = false
    },
    get isBroken() {
      return isBroken
    },
    cutAtStatement(text, times) {
      statement = text
      cutsLeft = times
    },
    get cutsLeft() {
      return cutsLeft
    },
    refuse(isNow) {
      isRefusing = isNow
    },
    async stop() {
      proxy.close()
      for (const socket of sockets) socket.destroy()
      await once(proxy, 'close')
    },
  }
}

/** Cuts a stream into messages: a type of one byte, then a length that counts itself. The first of a client has no type. */
function splitMessages(onMessage: (message: Buffer) => void, { hasStartup }: { hasStartup: boolean }): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0)
  let isStartup = hasStartup
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    for (;;) {
      const typeSize = isStartup ? 0 : 1
      if (rest.length < typeSize + 4) return
      const size = typeSize + rest.readInt32BE(typeSize)
      if (rest.length < size) return
      isStartup = false
      onMessage(rest.subarray(0, size))
      rest = rest.subarray(size)
    }
  }
}
