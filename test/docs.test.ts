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
import { pauseReasons, runStatuses, waitReasons } from '../src/model/run.ts'
import { patience } from './patience.ts'
import { sharedPostgres } from './servers/postgres.ts'
import { sharedRedis } from './servers/redis.ts'

const root = resolve(import.meta.dirname, '..')
const pages = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...filesIn('docs', '.md')]
const examples = filesIn('examples', '.ts')
/** Reads what the quickstart has left behind, and runs after it. */
const look = 'examples/snippets/look.ts'
const snippets = filesIn('examples/snippets', '.ts').filter((file) => file !== look)

describe('snippets', () => {
  const sources = examples.map((file) => trimmedLines(read(file)).filter((line) => !/^\/\/ #(end)?region/.test(line)))

  test.each(pages.flatMap(snippetsOf))('$page:$line is taken from a file in examples', ({ lines }) => {
    expect(sources.some((source) => contains(source, lines))).toBe(true)
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

    test('a newcomer can kill the first snippet of README and go on', async (context) => {
      const [first] = snippetsOf('README.md')
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

test('every export is on the page about the API', () => {
  const page = read('docs/reference/api.md')
  const entries = ['src/index.ts', 'src/store/index.ts', 'src/testing/index.ts', 'src/testing/store-suite/index.ts']
  const exported = entries.flatMap((file) => exportsOf(read(file)))
  expect(exported.length).toBeGreaterThan(40)
  expect(exported.filter((name) => !new RegExp(`\\b${name}\\b`).test(page))).toEqual([])
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
