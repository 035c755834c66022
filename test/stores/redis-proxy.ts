import { once } from 'node:events'
import { type AddressInfo, connect as connectTo, createServer, type Socket } from 'node:net'

/**
 * A way to a Redis server that can be made to fail. What it does with the next script call that passes through:
 *
 *   swallow  hands it on, keeps the answer to itself and says nothing more on this connection
 *   cut      hands it on, and cuts the connection when the answer comes
 *   hold     keeps it; `release` hands it on later, also when the caller has given up
 *   lose     drops it and cuts the connection
 */
export type Fault = 'swallow' | 'cut' | 'hold' | 'lose'

export interface RedisProxy {
  readonly url: string
  /** The fault is done to the next script call, or to the nth from now on, once. */
  arm(fault: Fault, nth?: number): void
  /** No fault is to be done. */
  disarm(): void
  /** How many faults were done. */
  readonly faultCount: number
  /** Hands on what was held. */
  release(): void
  stop(): Promise<void>
}

export async function startProxy(port: number): Promise<RedisProxy> {
  let armed: Fault | null = null
  let callsUntilFault = 0
  let faultCount = 0
  let held: (() => void)[] = []
  const sockets = new Set<Socket>()

  const proxy = createServer((caller) => {
    const server = connectTo(port, '127.0.0.1')
    let fault: Fault | null = null
    for (const socket of [caller, server]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
    }
    caller.on('data', (data) => {
      if (fault === null && armed !== null && data.includes('EVAL') && --callsUntilFault <= 0) {
        fault = armed
        armed = null
        faultCount += 1
        if (fault === 'lose') {
          caller.destroy()
          server.destroy()
          return
        }
      }
      if (fault === 'hold') held.push(() => server.write(data))
      else server.write(data)
    })
    server.on('data', (data) => {
      if (fault === null) caller.write(data)
      else if (fault === 'cut') caller.destroy()
    })
    caller.on('close', () => {
      // A held call is still delivered, although its sender no longer waits for it.
      if (fault !== 'hold') server.destroy()
    })
    server.on('close', () => caller.destroy())
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')

  return {
    url: `redis://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    arm: (fault, nth = 1) => {
      armed = fault
      callsUntilFault = nth
    },
    get faultCount() {
      return faultCount
    },
    disarm: () => {
      armed = null
    },
    release: () => {
      for (const send of held) send()
      held = []
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy()
      proxy.close()
      await once(proxy, 'close')
    },
  }
}
