import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A way to a server, at which connections can be closed. */
export interface Relay {
  /** The server's URL, this way. */
  readonly url: string
  /** Closes every connection there is, on both sides. Says how many. */
  cut(): number
  /** Closes new connections at once, as a server does that is away. */
  refuse(isRefusing: boolean): void
  /** Keeps what callers send, without closing anything, until it is told to let it through. */
  hold(isHeld: boolean): void
  /** New connections lead to this server from here on. */
  leadTo(serverUrl: string): void
  stop(): Promise<void>
}

export async function startRelay(serverUrl: string): Promise<Relay> {
  let target = new URL(serverUrl)
  const ends = new Set<() => void>()
  const callers = new Set<Socket>()
  let isRefusing = false

  const relay = createServer((caller) => {
    if (isRefusing) return void caller.destroy()
    const server = connect(Number(target.port), target.hostname)
    const end = () => {
      ends.delete(end)
      callers.delete(caller)
      caller.destroy()
      server.destroy()
    }
    ends.add(end)
    callers.add(caller)
    for (const [from, to] of [
      [caller, server],
      [server, caller],
    ] as [Socket, Socket][]) {
      from.setNoDelay(true)
      from.on('error', end).on('close', end)
      from.pipe(to)
    }
  }).listen(0, '127.0.0.1')
  await once(relay, 'listening')
  const url = new URL(serverUrl)
  url.port = String((relay.address() as AddressInfo).port)
  const cut = () => {
    const all = [...ends]
    for (const end of all) end()
    return all.length
  }

  return {
    url: url.href,
    cut,
    refuse: (isTrue) => {
      isRefusing = isTrue
    },
    hold: (isHeld) => {
      for (const caller of callers) isHeld ? caller.pause() : caller.resume()
    },
    leadTo: (otherUrl) => {
      target = new URL(otherUrl)
    },
    stop: async () => {
      relay.close()
      cut()
      await once(relay, 'close')
    },
  }
}
