import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { describe, expect, type TestContext, test } from 'vitest'
import { errorCodes } from '../src/model/errors.ts'
import { eventTypes } from '../src/model/event.ts'
import { notificationKinds } from '../src/model/notification.ts'
import { pauseReasons, runStatuses, waitReasons } from '../src/model/run.ts'
import { patience } from './patience.ts'
import { sharedPostgres } from './servers/postgres.ts'
import { sharedRedis } from './servers/redis.ts'

const root = resolve(import.meta.dirname, '..')
const rootPages = readdirSync(root).filter((file) => file.endsWith('.md'))
const pages = [...rootPages, ...filesIn('docs', '.md'), ...filesIn('skills', '.md')]
const sources = filesIn('src', '.ts').filter((file) => !file.endsWith('.test.ts'))
const examples = filesIn('examples', '.ts')
/** Reads what the quickstart has left behind, and runs after it. */
const look = 'examples/snippets/look.ts'
const snippets = filesIn('examples/snippets', '.ts').filter((file) => file !== look)

describe('snippets', () => {
  const excerpts = examples.map((file) => trimmedLines(read(file)).filter((line) => !/^\/\/ #(end)?region/.test(line)))

  test.each(pages.flatMap(snippetsOf))('$page:$line is taken from a file in examples', ({ lines }) => {
    expect(excerpts.some((source) => contains(source, lines))).toBe(true)
  })

  describe.concurrent('run', () => {
    test.for(snippets)('%s', async (file, context) => {
      const env = { ...process.env, ...(await serversFor(file)) }
      await promisify(execFile)(process.execPath, nodeArgs(file), {
        cwd: await emptyFolder(context),
        timeout: patience(50_000),
        env,
      })
    })

    test('the recovery plan that the guide shows is the one that its snippet prints', async (context) => {
      const printed = await runToEnd('examples/snippets/recovery-plan.ts', await emptyFolder(context))
      const shown = trimmedLines(read('docs/guides/recovery-plans.md'))
      const table = printed.slice(printed.findIndex((line) => line.startsWith('| #')))
      expect(table.length).toBeGreaterThan(20)
      expect(contains(shown, table)).toBe(true)
    })

    test('a newcomer can kill the first program of README that needs no model, and go on', async (context) => {
      const first = snippetsOf('README.md').find(({ lines }) => lines.join('\n').includes("workflow('report'"))
      const file = 'examples/snippets/quickstart.ts'
      expect(first?.lines).toEqual(trimmedLines(read(file)))
      const cwd = await emptyFolder(context)
      const heard = await runUntilKilled(file, { cwd, killAt: 'summarizing …' })
      expect(heard).toEqual(['loading data …', 'summarizing …'])
      const report = ['# Report', '', '4 refunds, 260.4 euros in all']
      expect(await runToEnd(file, cwd)).toEqual(['summarizing …', 'writing the report …', ...report])
      expect(await runToEnd(file, cwd)).toEqual(report)
      const seen = await runToEnd(look, cwd)
      expect(seen.slice(0, 4)).toEqual([
        '1 run_queued',
        '2 run_started',
        '3 step_started load_data',
        expect.stringMatching(/^4 step_completed load_data \d+$/),
      ])
      expect(seen.join('\n')).toContain("status: 'completed'")
    })

    test('a newcomer who kills it and then renames a step is told what happened', async (context) => {
      const file = 'examples/snippets/quickstart.ts'
      const cwd = await emptyFolder(context)
      await runUntilKilled(file, { cwd, killAt: 'summarizing …' })
      await mkdir(join(cwd, 'node_modules'))
      await symlink(root, join(cwd, 'node_modules', 'holdfast'))
      const edited = join(cwd, 'edited.mts')
      await writeFile(edited, read(file).replace("'load_data'", "'load'"))
      const args = ['--conditions=holdfast-source', edited]
      const failed = promisify(execFile)(process.execPath, args, { cwd, timeout: patience(50_000) })
      const { stderr } = (await failed.catch((error: unknown) => error)) as { stderr: string }
      expect(stderr).toMatch(/^holdfast: Run "refunds-2026-11" .* was taken over from worker/m)
      expect(stderr).toMatch(/^holdfast: Run "refunds-2026-11" .* is paused \(mismatch\): .*step:load_data#1.*run\.resume\(\)/m)
      expect(stderr).toContain("code: 'nondeterminism'")
    })
  })
})

test('links lead somewhere', () => {
  const broken = pages.flatMap((page) =>
    linksOf(page)
      .filter((link) => !leadsSomewhere(page, link))
      .map((link) => `${page}: ${link}`),
  )
  expect(broken).toEqual([])
})

test('no page has a section, and the changelog no entry, twice', () => {
  const twice = (lines: readonly string[]) => lines.filter((line, index) => lines.indexOf(line) !== index)
  const sections = pages.flatMap((page) => [...read(page).matchAll(/^## .*$/gm)].map(([heading]) => `${page}: ${heading}`))
  expect(twice(sections)).toEqual([])
  expect(twice([...read('CHANGELOG.md').matchAll(/^- .*$/gm)].map(([entry]) => entry))).toEqual([])
})

test('files that pages name are there', () => {
  const named = pages.flatMap((page) => [...read(page).matchAll(/`((?:src|test|examples|scripts|docs)\/[\w./-]+\.\w+)`/g)])
  expect(named.length).toBeGreaterThan(50)
  expect(named.map(([, file]) => file as string).filter((file) => !existsSync(join(root, file)))).toEqual([])
})

test('functions and classes that ARCHITECTURE names are in the code', () => {
  const code = filesIn('src', '.ts').map(read).join('\n')
  const names = [...read('ARCHITECTURE.md').matchAll(/`([A-Za-z]+\.)?#?([a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]?\w*)`/g)]
  expect(names.length).toBeGreaterThan(30)
  const missing = names.map(([, , name]) => name as string).filter((name) => !new RegExp(`\\b${name}\\b`).test(code))
  expect(missing).toEqual([])
})

test('README names the version that package.json has', () => {
  const version = /^\d+\.\d+/.exec(JSON.parse(read('package.json')).version)?.[0]
  expect(read('README.md')).toContain(`Status: ${version}.`)
})

test('CI runs commands and files that are there, on the oldest Node and the lowest peers that package.json allows', () => {
  const workflow = read('.github/workflows/ci.yml')
  const { scripts, engines, peerDependencies, devDependencies } = JSON.parse(read('package.json'))
  const commands = [...workflow.matchAll(/\bnpm run ([\w:]+)/g)].map(([, name]) => name as string)
  const files = [...workflow.matchAll(/\b(?:test|scripts|examples)\/[\w./-]+/g)].map(([file]) => file)
  expect(commands.filter((name) => !(name in scripts))).toEqual([])
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([])
  const lowest = (range: string) => range.replace('>=', '')
  expect(workflow).toContain(`node-version: '${lowest(engines.node)}'`)
  for (const name of ['pg', 'redis', 'vitest']) {
    const [major, minor = 0, patch = 0] = lowest(peerDependencies[name]).split('.')
    expect(workflow).toMatch(new RegExp(`packages: .*\\b${name}@${major}\\.${minor}\\.${patch}\\b`))
  }
  expect(read('.node-version').trim()).toBe(devDependencies['node'].replace('^', ''))
})

test('every decision is in their index', () => {
  const index = read('docs/decisions/README.md')
  const numbers = filesIn('docs/decisions', '.md').flatMap((file) => /\/(\d{4})-[\w-]+\.md$/.exec(file)?.[1] ?? [])
  expect(numbers.length).toBeGreaterThan(0)
  expect(numbers.filter((number) => !index.includes(`| ${number} |`))).toEqual([])
})

test('every error code is on the page about errors', () => {
  const page = read('docs/reference/errors.md')
  expect(errorCodes.filter((code) => !page.includes(`\`${code}\``))).toEqual([])
})

test('every status of a run, and every reason to wait or pause, is among the concepts', () => {
  const page = read('docs/concepts.md')
  const rowOf = (status: string) => page.split('\n').find((line) => line.startsWith(`| \`${status}\` |`)) ?? ''
  expect(runStatuses.filter((status) => rowOf(status) === '')).toEqual([])
  expect(waitReasons.filter((reason) => !rowOf('waiting').includes(`\`${reason}\``))).toEqual([])
  expect(pauseReasons.filter((reason) => !rowOf('paused').includes(`\`${reason}\``))).toEqual([])
})

test('every event that is written, and every kind of notification, is on the page about the API', () => {
  const page = read('docs/reference/api.md')
  const code = sources.filter((file) => !file.endsWith('/event.ts')).map(read)
  const written = eventTypes.filter((type) => code.some((text) => text.includes(`'${type}'`)))
  expect(written.length).toBeGreaterThan(30)
  expect([...written, ...notificationKinds].filter((name) => !page.includes(`\`${name}\``))).toEqual([])
})

test('every export is on the page about the API', () => {
  const page = read('docs/reference/api.md')
  const entryPoints = Object.values<{ 'holdfast-source'?: string }>(JSON.parse(read('package.json')).exports)
  const exported = entryPoints.flatMap((entry) => exportsOf(read(entry['holdfast-source'] ?? 'package.json')))
  expect(exported.length).toBeGreaterThan(40)
  expect(exported.filter((name) => !new RegExp(`\\b${name}\\b`).test(page))).toEqual([])
})

test('every act of a store is on the page about writing one, and ARCHITECTURE says how many there are', () => {
  const contract = /^export interface Store \{$(.*?)^\}$/ms.exec(read('src/store/store.ts'))?.[1] ?? ''
  const members = [...contract.matchAll(/^ {2}(?:readonly )?(\w+)\??([(:])/gm)].map(([, name, after]) => ({
    name,
    isAct: after === '(',
  }))
  const page = read('docs/stores/writing-a-store.md')
  expect(members.filter(({ name }) => !page.includes(`\`${name}\``)).map(({ name }) => name)).toEqual([])
  expect(read('ARCHITECTURE.md')).toContain(`the contract: ${members.filter(({ isAct }) => isAct).length} acts`)
})

describe('numbered invariants', () => {
  /** What the headers say: `S1–S9 src/store/store.ts`. */
  const inHeaders = sources.flatMap((file) => rangesIn(read(file)).map((range) => `${range} ${file}`))

  test('are in the table in ARCHITECTURE as the headers have them', () => {
    const rows = [...read('ARCHITECTURE.md').matchAll(/^\| ([A-Z]\d(?:–[A-Z]\d)?) \|.*\| `([^`]+)` \|$/gm)]
    expect(rows.map(([, range, file]) => `${range} ${file}`).toSorted()).toEqual(inHeaders.toSorted())
  })

  test('are numbered as in the headers wherever a page names a file with them', () => {
    const named = pages.flatMap((page) => [...read(page).matchAll(/`(src\/[\w./-]+)`(?:, | \()([A-Z]\d(?:–[A-Z]\d)?)\b/g)])
    expect(named.length).toBeGreaterThan(3)
    expect(named.map(([, file, range]) => `${range} ${file}`).filter((known) => !inHeaders.includes(known))).toEqual([])
    const ofTheStore = inHeaders.find((known) => known.endsWith('src/store/store.ts'))?.split(' ')[0]
    expect(read('docs/stores/writing-a-store.md')).toContain(`, ${ofTheStore?.replace('–', ' to ')}, `)
  })

  test('exist where comments and names of tests name them', () => {
    const known = new Set(sources.flatMap((file) => numbersIn(read(file))))
    const texts = [...sources, ...filesIn('test', '.ts')].map((file) => [file, read(file)] as const)
    const named = texts.flatMap(([file, text]) =>
      [...text.matchAll(/\(([A-Z]\d)(?:[,)]| and )/g)].map(([, number]) => [file, number]),
    )
    expect(named.length).toBeGreaterThan(20)
    expect(named.filter(([, number]) => !known.has(number as string))).toEqual([])
  })
})

describe('numbers on pages', () => {
  // The words around a number, and the constant or default in the code; in which file, where several have one of that name.
  test.each<[page: string, words: RegExp, constant: string]>([
    ['README.md', /lease time \((\d+ s) by default/, 'leaseMs in open.ts'],
    ['docs/concepts.md', /lease time \((\d+ s) by default/, 'leaseMs in open.ts'],
    ['docs/production.md', /the lease \((\d+ s)\)/, 'leaseMs in open.ts'],
    ['docs/guides/moving.md', /lease has expired \((\d+ s) by default/, 'leaseMs in open.ts'],
    ['docs/reference/api.md', /`leaseMs` \| ([\d,]+) \|/, 'leaseMs in open.ts'],
    ['docs/reference/api.md', /`pollMs` \| ([\d,]+) \|/, 'pollMs in worker.ts'],
    ['docs/reference/api.md', /`concurrency` \| ([\d,]+) \|/, 'concurrency in open.ts'],
    ['docs/reference/api.md', /`quietMs` \| ([\d,]+) \|/, 'defaultQuietMs'],
    ['docs/guides/waiting-and-control.md', /`quietMs` \((\d+ s) by default/, 'defaultQuietMs'],
    ['docs/reference/api.md', /`closeGraceMs` \| ([\d,]+) \|/, 'closeGraceMs'],
    ['docs/operations.md', /running steps finish \((\d+ s) by default/, 'closeGraceMs'],
    ['docs/operations.md', /nothing has happened for (\d+ minutes)/, 'defaultAfterMs'],
    ['ARCHITECTURE.md', /Waits of up to (\d+ s) stay in memory/, 'longWaitMs'],
    ['docs/guides/testing.md', /Waits of up to (\d+ s) stay in memory/, 'longWaitMs'],
    ['docs/guides/retries.md', /delays over (\d+ s)/, 'longWaitMs'],
    ['ARCHITECTURE.md', /- (\d+ s) if a call waits/, 'graceMs in patience.ts'],
    ['docs/concepts.md', /noticed after about (\d+ s)/, 'graceMs in patience.ts'],
    ['docs/decisions/0007-one-result-a-turn.md', /gives it at least (\d+ s) /, 'graceMs in patience.ts'],
    ['ARCHITECTURE.md', /flushed after ([\d.]+ s)/, 'deferredMs'],
    ['docs/concepts.md', /after about ([\d.]+ s)/, 'deferredMs'],
    ['ARCHITECTURE.md', /for (\d+ ms) or \d+ KiB/, 'flushMs in run-streams.ts'],
    ['ARCHITECTURE.md', /for \d+ ms or (\d+ KiB)/, 'recordBytes'],
    ['docs/guides/streaming.md', /more than (\d+ MiB) of the run/, 'roomBytes'],
    ['docs/guides/streaming.md', /refused at (\d+ MiB)/, 'maxBytes in run-streams.ts'],
    ['docs/concepts.md', /The limits are (\d+) levels/, 'defaultMaxDepth'],
    ['docs/concepts.md', /levels and (\d+ MiB)/, 'defaultMaxBytes'],
    ['docs/reference/errors.md', /more than (\d+ MiB) encoded/, 'defaultMaxBytes'],
    ['docs/production.md', /over (\d+ KiB) are compressed/, 'defaultCompressAbove'],
    ['docs/guides/retries.md', /tried again: (\d+) attempts/, 'attempts in retry.ts'],
    ['docs/guides/retries.md', /by default, after (\d+ s)/, 'minMs in retry.ts'],
    ['docs/guides/retries.md', /doubling up to (\d+ s)/, 'maxMs in retry.ts'],
    ['docs/guides/waiting-and-control.md', /function has (\d+ s) to unwind/, 'cancelGraceMs'],
    ['docs/guides/waiting-and-control.md', /longer than (\d+ s) they reject with `timeout`/, 'waitMs in undo-run.ts'],
    ['docs/reference/api.md', /the checkpoint; (\d+ s) at most/, 'transactionMs'],
    ['docs/reference/errors.md', /in the last (\d+ minutes)/, 'toleranceMs in verify-webhook.ts'],
  ])('%s: %s is %s', (page, words, constant) => {
    const stated = words.exec(read(page).replaceAll(/\s+/g, ' '))?.[1]
    expect(stated, 'the words on the page').toBeDefined()
    expect(amountOf(stated as string)).toBe(numberOf(constant))
  })
})

interface Snippet {
  readonly page: string
  readonly line: number
  readonly lines: readonly string[]
}

function snippetsOf(page: string): Snippet[] {
  const text = read(page)
  return [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((match) => ({
    page,
    line: text.slice(0, match.index).split('\n').length,
    lines: trimmedLines(match[1] ?? ''),
  }))
}

/** Indentation aside: an excerpt may stand deeper in its file than on the page. */
function trimmedLines(text: string): string[] {
  return text
    .trim()
    .split('\n')
    .map((line) => line.trim())
}

function contains(source: readonly string[], lines: readonly string[]): boolean {
  return source.some((_, start) => lines.every((line, index) => source[start + index] === line))
}

function linksOf(page: string): string[] {
  const text = read(page).replaceAll(/```.*?```/gs, '')
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link as string).filter((link) => !/^https?:/.test(link))
}

function leadsSomewhere(page: string, link: string): boolean {
  const [path = '', anchor] = link.split('#')
  const target = path === '' ? page : relative(root, resolve(root, dirname(page), path))
  if (!existsSync(join(root, target))) return false
  return anchor === undefined || anchorsOf(target).includes(anchor)
}

function anchorsOf(page: string): string[] {
  const headings = [...read(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading as string)
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )
}

function exportsOf(source: string): string[] {
  const lists = [...source.matchAll(/export (?:type )?\{([^}]*)\}/g)].map(([, list]) => list as string)
  return lists
    .flatMap((list) => list.split(','))
    .map((name) => name.replace(/\btype\b/, '').trim())
    .filter((name) => name !== '')
}

/** Numbers of invariants in headers: lines ` *   S1  …`. */
function numbersIn(source: string): string[] {
  return [...source.matchAll(/^ \* {3}([A-Z]\d) {2}\S/gm)].map(([, number]) => number as string)
}

/** `S1–S9` for the numbers S1, S2, … in a header, which has them in order and without gaps. */
function rangesIn(source: string): string[] {
  const counts = new Map<string, number>()
  for (const number of numbersIn(source)) {
    const letter = number[0] as string
    counts.set(letter, (counts.get(letter) ?? 0) + 1)
    expect(number).toBe(`${letter}${counts.get(letter)}`)
  }
  return [...counts].map(([letter, count]) => (count === 1 ? `${letter}1` : `${letter}1–${letter}${count}`))
}

/** A time in ms, a size in bytes or a plain number, as pages write them. */
function amountOf(text: string): number {
  const units = { ms: 1, s: 1_000, minutes: 60_000, KiB: 1024, MiB: 1024 ** 2 }
  const [number = '', unit] = text.split(' ')
  return Number(number.replaceAll(',', '')) * (unit === undefined ? 1 : units[unit as keyof typeof units])
}

/** What `waitMs`, or `waitMs in some-file.ts`, is in `src`: `waitMs = 5_000`, `waitMs ?? 5_000` or `waitMs: 5_000`. */
function numberOf(constant: string): number {
  const [name, file] = constant.split(' in ')
  const value = new RegExp(`\\b${name}(?: =| \\?\\?|:) ([\\d_]+(?: \\* [\\d_]+)*)\\b`, 'g')
  const texts = sources.filter((source) => file === undefined || basename(source) === file).map(read)
  const found = texts.flatMap((text) => [...text.matchAll(value)].map(([, factors]) => (factors as string).replaceAll('_', '')))
  const numbers = new Set(found.map((factors) => factors.split(' * ').reduce((product, factor) => product * Number(factor), 1)))
  expect(numbers.size, `values of ${constant}`).toBe(1)
  return [...numbers][0] as number
}

async function runUntilKilled(file: string, { cwd, killAt }: { cwd: string; killAt: string }): Promise<string[]> {
  const child = spawn(process.execPath, nodeArgs(file), { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
  let heard = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    heard += text
    if (heard.includes(killAt)) child.kill('SIGKILL')
  })
  const [, signal] = await once(child, 'close')
  expect(signal).toBe('SIGKILL')
  return trimmedLines(heard)
}

async function runToEnd(file: string, cwd: string): Promise<string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, nodeArgs(file), { cwd, timeout: patience(30_000) })
  return trimmedLines(stdout)
}

/** Addresses of servers, for snippets that ask for them: a database and a namespace of their own. */
async function serversFor(file: string): Promise<Record<string, string>> {
  const source = read(file)
  const env: Record<string, string> = {}
  if (source.includes('DATABASE_URL')) env['DATABASE_URL'] = await newDatabase()
  if (source.includes('REDIS_URL')) env['REDIS_URL'] = `${(await sharedRedis()).url}?namespace=${basename(file, '.ts')}`
  return env
}

async function newDatabase(): Promise<string> {
  const { url } = await sharedPostgres()
  const name = `docs_${randomBytes(4).toString('hex')}`
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`CREATE DATABASE ${name}`)
  await client.end()
  return url.replace(/\/postgres$/, `/${name}`)
}

function nodeArgs(file: string): string[] {
  return ['--conditions=holdfast-source', join(root, file)]
}

async function emptyFolder({ onTestFinished }: Pick<TestContext, 'onTestFinished'>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-docs-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

function filesIn(folder: string, extension: string): string[] {
  const files = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
  return files.filter((file) => file.endsWith(extension)).map((file) => `${folder}/${file.replaceAll('\\', '/')}`)
}

function read(file: string): string {
  return readFileSync(join(root, file), 'utf8')
}
