import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'

/** A program of `programs/`, running in a process of its own. What it reports are lines of JSON: `report()` of report.ts. */
export interface Program {
  readonly pid: number
  /** The next report called `name`, or one that came before and was not asked for yet. Fails when the program ends first. */
  said(name: string): Promise<unknown>
  /** SIGKILL, and wait until it is gone. */
  kill(): Promise<void>
  signal(signal: NodeJS.Signals): void
  /** How it ended: an exit code, or the name of a signal. */
  readonly ended: Promise<number | string>
}

/** Starts a program. It is killed after the test, if it still runs. */
export function startProgram(name: string, ...args: readonly string[]): Program {
  return start(name, commandOf(name, args))
}

/** Starts a program that sees other mounts: `setup` is a shell command, executed before it in a mount namespace of its own. */
export function startProgramMounted(setup: string, name: string, ...args: readonly string[]): Program {
  return start(name, ['unshare', '-rm', 'sh', '-c', `${setup} && exec "$@"`, 'sh', ...commandOf(name, args)])
}

function commandOf(name: string, args: readonly string[]): string[] {
  const file = fileURLToPath(new URL(`./programs/${name}.ts`, import.meta.url))
  return [process.execPath, '--conditions=holdfast-source', file, ...args]
}

function start(name: string, command: readonly string[]): Program {
  const child: ChildProcess = spawn(command[0] as string, command.slice(1), {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, NODE_OPTIONS: '' },
  })
  const reports: { name: string; value: unknown }[] = []
  const listeners = new Set<() => void>()
  let errors = ''
  let hasEnded = false
  const tell = () => {
    for (const listener of [...listeners]) listener()
  }
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
  lines.on('line', (line) => {
    reports.push(JSON.parse(line) as { name: string; value: unknown })
    tell()
  })
  const read = once(lines, 'close')
  const ended = once(child, 'exit').then(async ([code, signal]) => {
    await read
    hasEnded = true
    tell()
    return (code ?? signal) as number | string
  })
  const program: Program = {
    pid: child.pid as number,
    ended,
    signal: (signal) => void child.kill(signal),
    kill: async () => {
      child.kill('SIGKILL')
      await ended
    },
    said: (wanted) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const index = reports.findIndex((report) => report.name === wanted)
          if (index >= 0) {
            listeners.delete(look)
            resolve(reports.splice(index, 1)[0]?.value)
          } else if (hasEnded) {
            listeners.delete(look)
            reject(new Error(`${name} ended before it said "${wanted}". ${errors}`))
          }
        }
        listeners.add(look)
        look()
      }),
  }
  onTestFinished(() => program.kill())
  return program
}
