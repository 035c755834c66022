import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { open } from 'holdfast'
import { beforeAll, expect, test } from 'vitest'
import { collectArtifacts } from '../../src/artifacts/collect-artifacts.ts'
import { artifactPartsOf } from '../artifact-parts.ts'
import { patience } from '../patience.ts'
import { bundleProgram } from './bed/program-bundle.ts'

// Kills where no hook reaches: when the process is about to write, flush, rename or remove a file, of the store or of an artifact.

const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
/** Each run of the tests kills at one call of half of the kinds; with this, at every call. */
const isThorough = process.env['HOLDFAST_BOUNDARIES'] === 'all'
const limitMs = patience(480_000)
const calls = ['pwrite64', 'fsync', 'mkdir', 'unlink', 'rename', 'write']

let program: string
beforeAll(async () => {
  program = await bundleProgram(join(import.meta.dirname, 'artifacts-program.ts'))
  console.log(`artifacts: seed ${seed}`)
}, limitMs)

test('a process that is killed while it saves leaves no artifact without its bytes; the run is done by the next one', {
  timeout: limitMs,
}, async () => {
  const killed = await eachCall('save', async (file) => {
    await expectWhole(file)
    expect(await run('save', file)).toBe('done')
    // A number that a killed process had been given may be missing.
    expect(await expectWhole(file)).toEqual([...Array(3).fill('at once'), 'flaky', 'kept inside', 'large'])
  })
  expect(killed).toBeGreaterThan(0)
})

test('a process that is killed while it collects has removed nothing that is referred to, and the next one finishes', {
  timeout: limitMs,
}, async () => {
  const killed = await eachCall('collect', async (file) => {
    const before = await expectWhole(file)
    expect(await run('collect', file)).toBe('done')
    expect(await expectWhole(file)).toEqual(before)
    const { parts, close } = await artifactPartsOf(file)
    expect(await collectArtifacts(parts, { graceMs: 0 })).toMatchObject({ contents: 0, leftovers: 0, received: 0 })
    await close()
    expect(blobsIn(file)).toHaveLength(4)
  })
  expect(killed).toBeGreaterThan(0)
})

test('bytes are flushed before they get their name, and their folder before the artifact is committed', {
  timeout: limitMs,
}, async () => {
  await inFolder(async (file) => {
    const trace = `${file}.trace`
    expect(await run('save', file, ['-f', '-y', '-qq', '-s', '300', '-o', trace, '-e', 'trace=fsync,rename,pwrite64'])).toBe(
      'done',
    )
    const lines = readFileSync(trace, 'utf8').split('\n')
    const renames = lines.flatMap((line, index) => {
      const [, from, to] = /rename\("(.*incoming.*)", "(.*)"\) = 0/.exec(line) ?? []
      return from === undefined || to === undefined ? [] : [{ from, to, index }]
    })
    expect(renames.length).toBeGreaterThan(5)
    for (const { from, to, index } of renames) {
      const lastOf = (part: string) =>
        lines.slice(0, index).findLastIndex((line) => line.includes(`fsync(`) && line.includes(`<${part}>`))
      expect(lastOf(from)).toBeGreaterThan(-1)
      const after = lines.slice(index + 1).find((line) => /fsync\(|pwrite64\(\d+<[^>]*-wal>/.test(line))
      expect(after).toContain(`<${dirname(to)}>`)
    }
  })
})

/** Kills a process at calls that it makes, each in a store of its own. Returns how many were killed. */
async function eachCall(what: 'save' | 'collect', check: (file: string) => Promise<void>): Promise<number> {
  let killed = 0
  const counts = await inFolder((file) => countCalls(what, file), what)
  for (const [index, call] of calls.entries()) {
    const total = counts.get(call) ?? 0
    const all = Array.from({ length: total }, (_, at) => at + 1)
    const sample = total > 0 && (seed + index) % 2 === 0 ? [1 + (seed % Math.ceil(total * 0.8))] : []
    for (const nth of isThorough ? all : sample) {
      await inFolder(async (file) => {
        const inject = ['-e', `trace=${call}`, '-e', `inject=${call}:signal=SIGKILL:when=${nth}`]
        if ((await run(what, file, ['-f', '-qq', '-o', '/dev/null', ...inject])) === 'killed') killed++
        await check(file).catch((error: Error) => {
          throw new Error(`killed at ${call} ${nth}: ${error.message}`, { cause: error })
        })
      }, what)
    }
  }
  return killed
}

/** How many calls of each kind one of its threads makes. */
async function countCalls(what: 'save' | 'collect', file: string): Promise<ReadonlyMap<string, number>> {
  const trace = `${file}.trace`
  expect(await run(what, file, ['-f', '-qq', '-o', trace, '-e', `trace=${calls.join(',')}`])).toBe('done')
  const byThread = new Map<string, number>()
  const counts = new Map<string, number>()
  for (const line of readFileSync(trace, 'utf8').split('\n')) {
    const [, thread, call] = /^(\d+) +(\w+)\(/.exec(line) ?? []
    if (thread === undefined || call === undefined) continue
    const count = (byThread.get(`${thread} ${call}`) ?? 0) + 1
    byThread.set(`${thread} ${call}`, count)
    counts.set(call, Math.max(count, counts.get(call) ?? 0))
  }
  return counts
}

async function inFolder<T>(act: (file: string) => Promise<T>, what?: 'save' | 'collect'): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-artifacts-'))
  try {
    const file = join(folder, 'holdfast.db')
    if (what === 'collect') await prepareLeftovers(file)
    return await act(file)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A store in which a run has saved, with content that nothing refers to any more, and some that nothing ever did. */
async function prepareLeftovers(file: string): Promise<void> {
  expect(await run('save', file)).toBe('done')
  const hf = await open(`sqlite:${file}`, { worker: false })
  for (const type of ['generated_file', 'analysis_result'] as const) {
    const { id } = await hf.artifacts.save({ name: 'gone', type, content: Buffer.alloc(600_000, type) })
    await hf.artifacts.delete(id)
  }
  await hf.close()
  writeFileSync(join(`${file}.artifacts`, 'incoming', 'half'), 'half')
}

/** Every artifact that can be seen has its bytes, and a version of its own. Their names. */
async function expectWhole(file: string): Promise<string[]> {
  const hf = await open(`sqlite:${file}`, { worker: false })
  try {
    const { items } = await hf.artifacts.list()
    for (const { id, size } of items) expect((await (await hf.artifacts.open(id)).bytes()).length).toBe(size)
    expect((await hf.verify()).damaged).toEqual([])
    expect(new Set(items.map(({ name, version }) => `${name} ${version}`)).size).toBe(items.length)
    return items.map(({ name }) => name).sort()
  } finally {
    await hf.close()
  }
}

function blobsIn(file: string): string[] {
  const folder = `${file}.artifacts`
  return existsSync(folder)
    ? readdirSync(folder, { recursive: true })
        .map(String)
        .filter((name) => /[0-9a-f]{64}-/.test(name))
    : []
}

/** Under strace, if it is told what to trace. */
async function run(what: string, file: string, strace?: readonly string[]): Promise<'done' | 'killed'> {
  const node = [process.execPath, program, what, file]
  const [command = '', ...args] = strace === undefined ? node : ['strace', ...strace, ...node]
  // One thread for files, so that its calls have an order.
  const child = spawn(command, args, { env: { ...process.env, UV_THREADPOOL_SIZE: '1' }, stdio: ['ignore', 'ignore', 'pipe'] })
  let errors = ''
  child.stderr.on('data', (chunk) => {
    errors += String(chunk)
  })
  const [code, signal] = await once(child, 'close')
  if (code === 0) return 'done'
  if (signal === 'SIGKILL' || code === 137) return 'killed'
  throw new Error(`${what} ended with ${code ?? signal}: ${errors}`)
}
