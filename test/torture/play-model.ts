import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { Coverage } from '../model/coverage.ts'
import { generateCase } from '../model/generate.ts'
import type { StoreName } from '../model/grounds.ts'
import type { Violation } from '../model/oracle.ts'
import { printCase } from '../model/print.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'

export interface PlayModelOptions {
  readonly store: StoreName
  readonly programs: number
  readonly seed: number
  /** Processes that execute programs in parallel. */
  readonly processes: number
  /** Separate processes execute the runs, and are killed by SIGKILL. */
  readonly kills: boolean
  /** The folder of another checkout, to try its Holdfast. */
  readonly on?: string
  readonly say: (line: string) => void
}

interface Report {
  readonly played: number
  readonly findings: readonly { readonly seed: number; readonly store: StoreName; readonly violations: readonly Violation[] }[]
  readonly unhandled: readonly string[]
  readonly coverage: ReturnType<Coverage['toJSON']>
}

/** Programs per process: a new process starts with fresh memory. */
const batchSize = { simulated: 2_500, killed: 100 }

/** Executes cases of the model, and returns what was wrong, with the programs. */
export async function playModel(options: PlayModelOptions): Promise<{ played: number; wrong: string[]; coverage: Coverage }> {
  const { store, programs, seed, processes, kills, on, say } = options
  const url = store === 'postgres' ? (await sharedPostgres()).url : store === 'redis' ? (await sharedRedis()).url : undefined
  const size = kills ? batchSize.killed : batchSize.simulated
  const coverage = new Coverage()
  const wrong: string[] = []
  let played = 0
  let next = 0
  const lane = async () => {
    while (next < programs && wrong.length < 50) {
      const first = next
      next += size
      const count = Math.min(size, programs - first)
      const args = ['--store', store, '--programs', String(count), '--seed', String(seed + first), '--json']
      args.push(
        '--lanes',
        store === 'memory' ? '40' : '8',
        ...(kills ? ['--kill'] : []),
        ...(url === undefined ? [] : ['--url', url]),
      )
      const report = await runModel(args, on)
      played += report.played
      coverage.merge(report.coverage)
      for (const reason of report.unhandled) wrong.push(`unhandled rejection from seed ${seed + first} on: ${reason}`)
      for (const { seed: of, violations } of report.findings) {
        const rules = violations.map(({ rule, what }) => `${rule}: ${what}`).join('; ')
        wrong.push(
          `seed ${of} on ${store}${kills ? ', killed' : ''}: ${rules}\n${printCase(generateCase(of, { store, withoutFaults: kills }))}`,
        )
      }
      say(`${store}: ${played} programs${kills ? ' with kills' : ''}, ${wrong.length} wrong`)
    }
  }
  await Promise.all(Array.from({ length: processes }, lane))
  return { played, wrong, coverage }
}

async function runModel(args: readonly string[], on: string | undefined): Promise<Report> {
  const program = join(import.meta.dirname, '../model/main.ts')
  const env = { ...process.env, ...(on !== undefined && { HOLDFAST_MODEL_ON: on }) }
  const child = spawn(process.execPath, ['--conditions=holdfast-source', program, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  await new Promise((resolve, reject) => child.on('error', reject).on('close', resolve))
  return JSON.parse(output) as Report
}
