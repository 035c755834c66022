import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { buildAndPack, firstSnippet, type Printed, run, runQuietly } from './packed.ts'

// An application that depends on the package, installed from its lock file as in a slim container: nothing that could compile.

const quiet = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
let folder: string
let app: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-install-'))
  const tarball = await buildAndPack(join(folder, 'package'))
  app = join(folder, 'app')
  await mkdir(app)
  const dependencies = { holdfast: `file:${tarball}` }
  await writeFile(join(app, 'package.json'), JSON.stringify({ name: 'app', private: true, type: 'module', dependencies }))
  await writeFile(join(app, 'program.js'), stripTypeScriptTypes(await firstSnippet()))
  await run('npm', ['install', ...quiet], app)
  await rm(join(app, 'node_modules'), { recursive: true })
  await runQuietly('npm', ['ci', ...quiet], { cwd: app, env: { PATH: await pathWithoutCompiler() } })
}, patience(300_000))

afterAll(() => rm(folder, { recursive: true, force: true }))

test('npm ci needs no compiler, and installs nothing that SQLite would need', () => {
  expect(existsSync(join(app, 'node_modules/holdfast'))).toBe(true)
  expect(existsSync(join(app, 'node_modules/better-sqlite3'))).toBe(false)
})

test('the AI SDK is not installed with it, and holdfast/ai says what it needs', async () => {
  expect(existsSync(join(app, 'node_modules/ai'))).toBe(false)
  await writeFile(
    join(app, 'agent.js'),
    "await import('holdfast'); await import('holdfast/ai').catch(({ code, message }) => console.log(code, message))",
  )
  expect(await run(process.execPath, ['agent.js'], app)).toMatch(/^ERR_MODULE_NOT_FOUND Cannot find package 'ai'/)
})

test('LangGraph is not installed with it, and holdfast/langgraph says what it needs', async () => {
  for (const name of ['@langchain', 'langsmith']) expect(existsSync(join(app, 'node_modules', name))).toBe(false)
  await writeFile(
    join(app, 'graph.js'),
    "await import('holdfast'); await import('holdfast/langgraph').catch(({ code, message }) => console.log(code, message))",
  )
  expect(await run(process.execPath, ['graph.js'], app)).toMatch(/^ERR_MODULE_NOT_FOUND Cannot find package '@langchain\//)
})

test("README's program runs, and nothing is said on stderr", async () => {
  expect(await runProgram(process.execPath)).toMatchObject({ stderr: '' })
})

test('CommonJS can require the package', async () => {
  await writeFile(
    join(app, 'required.cjs'),
    `const { open, workflow } = require('holdfast')
     const greet = workflow('greet', (ctx, name) => ctx.step('greet', () => 'Hello ' + name))
     open('sqlite::memory:').then(async (hf) => {
       console.log(await hf.run(greet, 'Alice'))
       await hf.close()
     })`,
  )
  expect((await run(process.execPath, ['required.cjs'], app)).trim()).toBe('Hello Alice')
})

test('esbuild bundles it without naming anything as external', { timeout: patience(120_000) }, async () => {
  const tools = await install('esbuild')
  const bundle = join(folder, 'bundle.mjs')
  const options = ['--bundle', '--platform=node', '--format=esm', '--log-level=error', `--outfile=${bundle}`]
  await run(join(tools, 'node_modules/.bin/esbuild'), ['program.js', ...options], app)
  await rm(join(app, 'holdfast.db'), { force: true })
  expect(await runQuietly(process.execPath, [bundle], { cwd: folder })).toMatchObject({ stderr: '' })
})

describe('on the newest Node 22', () => {
  let node: string
  beforeAll(async () => {
    node = await installNode('22')
  }, patience(180_000))

  test("README's program runs, and nothing is said on stderr", async () => {
    expect(await runProgram(node)).toMatchObject({ stderr: '' })
  })

  test('warnings of the application are said', async () => {
    const program = `import { open } from 'holdfast'
      await (await open('sqlite::memory:', { worker: false })).close()
      process.emitWarning('of the application', 'ExperimentalWarning')`
    const { stderr } = await runCode(node, program)
    expect(stderr).toContain('ExperimentalWarning: of the application')
    expect(stderr).not.toContain('SQLite')
  })
})

describe('on a Node whose own SQLite is too old', () => {
  let node: string
  let oldest: string
  beforeAll(async () => {
    node = await installNode('22.14.0')
    oldest = await installNode('22.13.0')
  }, patience(180_000))

  const opening = (url: string) => `import { open } from 'holdfast'
    const hf = await open('${url}', { worker: false }).catch(({ code, message }) => console.log(code, message))
    await hf?.close()`

  test('sqlite: says what to install or to use instead; other stores need neither', async () => {
    for (const [old, wanted] of [
      [node, 'npm install better-sqlite3,'],
      [oldest, 'npm install better-sqlite3@12,'],
    ] as const) {
      const { stdout } = await runCode(old, opening('sqlite:old.db'))
      expect(stdout).toContain('missing_dependency')
      expect(stdout).toContain(wanted)
      expect(stdout).toContain('Node 22.23 or 24.15 and newer')
      expect(await runCode(old, opening('memory:'))).toEqual({ stdout: '', stderr: '' })
    }
  })

  test('a handle of its own SQLite is refused', async () => {
    const program = `import { DatabaseSync } from 'node:sqlite'
      import { open } from 'holdfast'
      await open(new DatabaseSync('mine.db')).catch(({ code }) => console.log(code))`
    for (const old of [node, oldest]) expect((await runCode(old, program)).stdout.trim()).toBe('durability_too_weak')
  })

  test("README's program runs with better-sqlite3", { timeout: patience(120_000) }, async () => {
    await run('npm', ['install', 'better-sqlite3@13', '--ignore-scripts', ...quiet], app)
    expect(await runProgram(node)).toMatchObject({ stderr: '' })
    // Its binary would end Node 22.13.
    expect((await runCode(oldest, opening('sqlite:old.db'))).stdout).toContain('npm install better-sqlite3@12,')
  })
})

async function runProgram(node: string): Promise<Printed> {
  for (const suffix of ['', '-wal', '-shm']) await rm(join(app, `holdfast.db${suffix}`), { force: true })
  return runQuietly(node, ['program.js'], { cwd: app })
}

function runCode(node: string, code: string): Promise<Printed> {
  return runQuietly(node, ['--input-type=module', '-e', code], { cwd: app })
}

/** A folder of its own with the package in it. */
async function install(name: string): Promise<string> {
  const target = join(folder, name.replace('@', '-'))
  await mkdir(target)
  await writeFile(join(target, 'package.json'), JSON.stringify({ private: true }))
  await run('npm', ['install', name, ...quiet], target)
  return target
}

async function installNode(version: string): Promise<string> {
  return realpath(join(await install(`node@${version}`), 'node_modules/.bin/node'))
}

/** Node, npm and what starts them. */
async function pathWithoutCompiler(): Promise<string> {
  const bin = join(folder, 'bin')
  await mkdir(bin)
  for (const name of ['npm', 'env', 'sh']) await symlink(await realpath(find(name)), join(bin, name))
  await symlink(process.execPath, join(bin, 'node'))
  return bin
}

function find(name: string): string {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((place) => join(place, name))
  const found = places.find((place) => existsSync(place))
  if (found === undefined) throw new Error(`${name} is not on the PATH.`)
  return found
}
