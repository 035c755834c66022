import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** Starts processes for the tests of the SQLite store, plainly or under a tool of the system. */

const program = join(import.meta.dirname, 'sqlite-process.ts')

export interface Started {
  readonly process: ChildProcess
  /** The next line that it prints. */
  next(): Promise<Record<string, unknown>>
  kill(): Promise<void>
}

export function start(act: string, file: string, argument = ''): Started {
  return follow(spawn(process.execPath, [program, act, file, argument], { stdio: ['ignore', 'pipe', 'inherit'] }))
}

/** Runs an act to its end and returns the last line that it printed. */
export async function run(act: string, file: string, argument = ''): Promise<Record<string, unknown>> {
  return end(spawn(process.execPath, [program, act, file, argument], { stdio: ['ignore', 'pipe', 'inherit'] }))
}

/** How often an act flushes files to the disk. */
export async function countSyncs(act: string, file: string, argument: string): Promise<number> {
  requireTool('strace')
  const child = spawn('strace', ['-f', '-e', 'trace=fsync,fdatasync', process.execPath, program, act, file, argument], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let trace = ''
  child.stderr?.on('data', (chunk) => {
    trace += chunk
  })
  await new Promise((done) => child.on('close', done))
  if (child.exitCode !== 0) throw new Error(`strace ended with ${child.exitCode}: ${trace.slice(-2_000)}`)
  return trace.match(/(?:fsync|fdatasync)\(/g)?.length ?? 0
}

/** What a commit says when the disk refuses to flush from the 40th time on. */
export async function commitOnBadDisk(driver: string, file: string): Promise<Record<string, unknown>> {
  requireTool('strace')
  const calls = 'fsync,fdatasync'
  const strace = ['-f', '-qq', '-o', '/dev/null', '-e', `trace=${calls}`, '-e', `inject=${calls}:error=EIO:when=40+`]
  const command = [...strace, process.execPath, program, 'commitUntilItFails', file, driver]
  return end(spawn('strace', command, { stdio: ['ignore', 'pipe', 'inherit'] }))
}

/** Runs an act with `folder` on a disk of this size. */
export async function runOnSmallDisk(act: string, { folder, file, bytes }: { folder: string; file: string; bytes: number }) {
  requireTool('unshare')
  const command = `mount -t tmpfs -o size=${bytes} tmpfs "$1" && exec "$2" "$3" "$4" "$5"`
  return end(
    spawn('unshare', ['-rm', 'sh', '-c', command, 'sh', folder, process.execPath, program, act, file], {
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  )
}

function requireTool(name: string): void {
  if ((process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, name)))) return
  throw new Error(
    `${name} is missing. This test proves a guarantee with it: install it (apt-get install ${name === 'unshare' ? 'util-linux' : name}).`,
  )
}

async function end(child: ChildProcess): Promise<Record<string, unknown>> {
  const { next } = follow(child)
  const closed = new Promise((done) => child.on('close', done))
  const line = await next()
  await closed
  return line
}

function follow(child: ChildProcess): Started {
  const lines: Record<string, unknown>[] = []
  const waiting: { resolve: (line: Record<string, unknown>) => void; reject: (error: Error) => void }[] = []
  let rest = ''
  const settle = () => {
    while (lines.length > 0 && waiting.length > 0) waiting.shift()?.resolve(lines.shift() as Record<string, unknown>)
  }
  child.stdout?.on('data', (chunk) => {
    const parts = `${rest}${chunk}`.split('\n')
    rest = parts.pop() ?? ''
    for (const part of parts) lines.push(JSON.parse(part) as Record<string, unknown>)
    settle()
  })
  child.on('close', (code) => {
    for (const { reject } of waiting.splice(0)) reject(new Error(`the process ended with ${code} and said nothing`))
  })
  return {
    process: child,
    next: () =>
      new Promise((resolve, reject) => {
        waiting.push({ resolve, reject })
        settle()
        if (child.exitCode !== null) for (const { reject } of waiting.splice(0)) reject(new Error('the process has ended'))
      }),
    kill: async () => {
      const closed = new Promise((done) => child.on('close', done))
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null) await closed
    },
  }
}
