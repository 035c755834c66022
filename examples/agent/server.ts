import { type ChildProcess, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { open } from 'holdfast'
import { chatHandler, toNodeHandler } from 'holdfast/ai'
import { support } from './support.ts'

// npm run example:agent [-- --url sqlite:agent.db --port 3000]

const options = process.argv.slice(2)
const option = (name: string, otherwise: string) => options[options.indexOf(`--${name}`) + 1 || options.length] ?? otherwise
const url = option('url', 'sqlite:agent.db')

// #region server
const hf = await open(url, { worker: false }) // this process answers requests; the answers are made by the worker
// Here everybody is the same user, and of finance: an application looks at the session of the request.
const authorize = () => ({ owner: 'demo', by: 'dana', roles: ['finance'] })
const chat = toNodeHandler(chatHandler(hf, support, { authorize }).handle)
// #endregion

let isClosing = false
let worker = startWorker()

/** A worker that ends, for whatever reason, is followed by another. */
function startWorker(): ChildProcess {
  const program = [...process.execArgv, join(import.meta.dirname, 'worker.ts'), url]
  const started = spawn(process.execPath, program, { stdio: 'inherit' })
  started.once('exit', (_, signal) => {
    if (isClosing || worker !== started) return
    console.log(`worker ${started.pid} ended (${signal ?? 'by itself'})`)
    setTimeout(() => {
      worker = startWorker()
    }, 1_000)
  })
  return started
}

function killWorker(response: ServerResponse): void {
  const killed = worker
  worker = startWorker()
  killed.kill('SIGKILL')
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ killed: killed.pid, started: worker.pid }))
}

const server = createServer((request: IncomingMessage, response: ServerResponse) => {
  // A page elsewhere that has given itself this address by DNS can't use it.
  if (!/^(localhost|127\.0\.0\.1)(:\d+)?$/.test(request.headers.host ?? '')) return void response.writeHead(403).end()
  const { pathname } = new URL(request.url ?? '/', 'http://localhost')
  if (pathname.startsWith('/api/chat')) return void chat(request, response)
  if (pathname === '/kill-worker' && request.method === 'POST' && request.headers['x-demo'] === 'yes') return killWorker(response)
  if (pathname !== '/') return void response.writeHead(404).end()
  readFile(join(import.meta.dirname, 'page.html')).then((page) =>
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(page),
  )
})

server.once('error', async (error: NodeJS.ErrnoException) => {
  const isTaken = error.code === 'EADDRINUSE'
  console.error(isTaken ? 'The port is taken. Choose another: npm run example:agent -- --port 3001' : error)
  isClosing = true
  worker.kill('SIGTERM')
  await hf.close()
  process.exitCode = 1
})

server.listen(Number(option('port', '3000')), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
})

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, async () => {
    isClosing = true
    worker.kill('SIGTERM')
    server.closeAllConnections()
    server.close()
    await hf.close()
    process.exit(0)
  })
}
