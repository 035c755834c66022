import { HoldfastError } from '../../model/errors.ts'

/** What a server answers, with Buffers for its strings. */
export type Reply = Buffer | number | null | readonly Reply[]

/** One way to the server, over whichever client library. */
export interface Link {
  /** Whether a command would be sent at once. */
  readonly isReady: boolean
  send(command: readonly (string | Buffer)[]): Promise<Reply>
  /** Abandons a connection that does not answer. A user's client reconnects by itself; its server is checked again. */
  drop(): void
}

/** Where links come from: a server of which we know the address, or a client that the user opened. */
export interface LinkSource {
  /** A link that is ready. Rejects if there is none at the moment. */
  connect(): Promise<Link>
  /** Listens on a separate connection, as soon and as long as there is one. Returns the function that ends it. */
  listen(channel: string, listener: Listener): () => void
}

export interface Listener {
  onMessage(message: string): void
  /** Messages may have been missed. */
  onGap(): void
}

/** A client of `redis` (node-redis) or `ioredis`, for one server or a cluster, that the caller opened and will close. */
export type RedisClientLike = NodeRedisClient | NodeRedisCluster | IoredisClient

interface NodeRedisClient {
  readonly isReady: boolean
  readonly socketEpoch?: number
  sendCommand(command: readonly (string | Buffer)[], options?: object): Promise<unknown>
  duplicate(): unknown
}

interface NodeRedisCluster {
  readonly isOpen: boolean
  readonly masters: unknown
  sendCommand(key: string, isReadonly: boolean, command: readonly (string | Buffer)[], options?: object): Promise<unknown>
  duplicate(): unknown
}

interface IoredisClient {
  readonly status: string
  readonly stream?: unknown
  callBuffer(command: string, ...args: (string | Buffer)[]): Promise<unknown>
  duplicate(): unknown
}

/** Tells a client of either library from other things that can be opened. */
export function isRedisClient(value: unknown): value is RedisClientLike {
  if (typeof value !== 'object' || value === null || !('duplicate' in value)) return false
  if ('callBuffer' in value) return 'status' in value
  return 'sendCommand' in value && ('isReady' in value || 'masters' in value)
}

const connectTimeoutMs = 3_000
/** `$`, the type of strings in Redis's protocol: they come as Buffers. */
const asBuffers = { typeMapping: { 36: Buffer } }

/** Links to a server by its URL, over `redis`. We connect again ourselves, so that it is known what was sent and what was not. */
export async function linksTo(url: string): Promise<LinkSource> {
  const { createClient } = await loadRedis()
  // Making a client builds a class with all commands of Redis in it, which takes longer than to connect. Copies share theirs.
  const mould = createClient({ RESP: 2, commandOptions: { timeout: 0 }, clientInfoTag: 'holdfast' })
  return {
    async connect() {
      const socket = { connectTimeout: connectTimeoutMs, reconnectStrategy: false } as const
      const client = mould.duplicate({ url, disableOfflineQueue: true, socket })
      // Every command that fails says so itself.
      client.on('error', () => {})
      await client.connect()
      // A process may end that has nothing else to do: a command under way keeps it alive, and so does a worker.
      client.unref()
      let underWay = 0
      return {
        get isReady() {
          return client.isReady
        },
        send: async (command) => {
          if (underWay++ === 0) client.ref()
          try {
            return (await client.sendCommand(command as string[], asBuffers as object)) as Reply
          } finally {
            if (--underWay === 0) client.unref()
          }
        },
        drop: () => {
          if (client.isOpen) client.destroy()
        },
      }
    },
    listen: (channel, listener) => listenWith(mould.duplicate({ url }), channel, listener),
  }
}

/** Links over a client that the user opened. `key` tells a cluster which node is meant. */
export function linksOver(client: RedisClientLike, key: string): LinkSource {
  const { isReady, send, connection } = ways(client, key)
  // A client that was made a moment ago may still be connecting. Later calls try again themselves.
  let patientUntil = performance.now() + connectTimeoutMs
  return {
    async connect() {
      while (!isReady() && performance.now() < patientUntil) await new Promise((resolve) => setTimeout(resolve, 10))
      patientUntil = 0
      if (!isReady()) throw new Error('the client that was passed in is not connected')
      let own: unknown = connection()
      return {
        // It connects again by itself, maybe to another server, which has to be looked at.
        get isReady() {
          return isReady() && own === connection()
        },
        send,
        drop: () => {
          own = dropped
        },
      }
    },
    listen: (channel, listener) => {
      const duplicate = client.duplicate() as ListeningClient
      return 'callBuffer' in client ? listenWithIoredis(duplicate, channel, listener) : listenWith(duplicate, channel, listener)
    },
  }
}

const dropped = Symbol('dropped')

/** `connection` tells one connection of the client from the next; a cluster has many, and does not tell. */
interface Ways {
  readonly isReady: () => boolean
  readonly send: Link['send']
  readonly connection: () => unknown
}

function ways(client: RedisClientLike, key: string): Ways {
  if (!isRedisClient(client)) {
    throw new HoldfastError('invalid_url', 'This is not a client of "redis" or "ioredis". Pass one of them, or a redis:// URL.')
  }
  if ('callBuffer' in client) {
    return {
      isReady: () => client.status === 'ready',
      connection: () => client.stream,
      send: ([name, ...args]) => client.callBuffer(name as string, ...args) as Promise<Reply>,
    }
  }
  if ('masters' in client) {
    return {
      isReady: () => client.isOpen,
      connection: () => undefined,
      send: (command) => client.sendCommand(key, false, command, asBuffers) as Promise<Reply>,
    }
  }
  return {
    isReady: () => client.isReady,
    connection: () => client.socketEpoch,
    send: (command) => client.sendCommand(command, asBuffers) as Promise<Reply>,
  }
}

/** Just enough of a client to listen with. */
interface ListeningClient {
  on(event: string, listener: (...args: string[]) => void): unknown
  connect(): Promise<unknown>
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  destroy?(): unknown
  disconnect?(): unknown
  /** Lets the process end while it listens: no caller waits for a message. */
  unref?(): unknown
  readonly isOpen?: boolean
}

function listenWith(client: ListeningClient, channel: string, { onMessage, onGap }: Listener): () => void {
  client.on('error', () => {})
  client.on('ready', () => {
    client.unref?.()
    onGap()
  })
  const subscribed = client.connect().then(() => client.subscribe(channel, onMessage))
  // Without a channel polling has to do.
  subscribed.catch(() => {})
  return () => {
    if (client.isOpen !== false) client.destroy?.()
  }
}

function listenWithIoredis(client: ListeningClient, channel: string, { onMessage, onGap }: Listener): () => void {
  client.on('error', () => {})
  client.on('ready', onGap)
  client.on('message', (_channel, message) => onMessage(message ?? ''))
  const subscribed = (client.subscribe as (channel: string) => Promise<unknown>).call(client, channel)
  subscribed.catch(() => {})
  return () => client.disconnect?.()
}

async function loadRedis(): Promise<typeof import('redis')> {
  try {
    return await import('redis')
  } catch (cause) {
    if ((cause as { code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw cause
    throw new HoldfastError('missing_dependency', 'A redis:// URL needs the package "redis". Install it: npm install redis', {
      cause,
    })
  }
}
