import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, posix } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { buildAndPack, firstSnippet, root, run } from './packed.ts'

// The package as a user gets it.

const bin = join(root, 'node_modules/.bin')
let folder: string
let tarball: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-pack-'))
  tarball = await buildAndPack(join(folder, 'package'))
}, patience(180_000))

afterAll(() => rm(folder, { recursive: true, force: true }))

test('the package holds what was built and its papers, and nothing else', async () => {
  const packed = await listPacked()
  expect(packed).toEqual(expect.arrayContaining(['README.md', 'LICENSE', 'CHANGELOG.md', 'dist/index.js', 'dist/index.d.ts']))
  const isExpected =
    /^(dist\/.+\.(js|d\.ts)|docs\/(?!api-report\/).+\.(md|sql|lua)|skills\/.+\.md|llms\.txt|package\.json|[A-Z_]+\.md|LICENSE)$/
  expect(packed.filter((path) => !isExpected.test(path))).toEqual([])
  expect(packed.filter((path) => path.includes('.test.'))).toEqual([])
})

test('it stays below 1.3 megabytes', async () => {
  expect((await stat(tarball)).size).toBeLessThan(1_300_000)
})

test('what README links to is in the package', async () => {
  const links = await linksOf('README.md')
  expect(links.length).toBeGreaterThan(30)
  expect(await missing(links)).toEqual([])
  // The npm page finds links by their path from the root of the repository.
  expect(links.filter((link) => !/^\w[\w/-]*\.md$/.test(link))).toEqual([])
})

test('what its pages link to is in the package, or code of the repository', async () => {
  const pages = (await listPacked()).filter((path) => path.endsWith('.md'))
  const links = (await Promise.all(pages.map(linksOf))).flat()
  expect(links.length).toBeGreaterThan(100)
  expect((await missing(links)).filter((link) => !/^(src|examples|bench|test)\//.test(link))).toEqual([])
})

test('package.json says what it is, for whom, and how to find it', async () => {
  const { description, keywords, license, engines, sideEffects } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  expect({ license, engines, sideEffects }).toEqual({ license: 'MIT', engines: { node: '>=22.13' }, sideEffects: false })
  expect(description).toMatch(/\.$/)
  expect(keywords).toEqual(expect.arrayContaining(['durable-execution', 'workflow', 'agents', 'typescript']))
  expect(keywords).toEqual([...new Set(keywords)].toSorted())
})

test('declarations and code import each other by the names that were built', async () => {
  const dist = join(folder, 'package/dist')
  for (const file of await readdir(dist, { recursive: true })) {
    if (!/\.(js|d\.ts)$/.test(file)) continue
    const text = await readFile(join(dist, file), 'utf8')
    expect(text, file).not.toMatch(/(from|import\() ?['"]\.[^'"]*\.ts['"]/)
  }
})

test('docs/api-report shows the surface as it is: npm run api', async () => {
  const report = join(folder, 'api-report')
  await run(process.execPath, ['scripts/api-report.mjs', join(folder, 'package/dist'), report])
  expect(await readPages(join(root, 'docs/api-report'))).toEqual(await readPages(report))
})

test('publint finds nothing', async () => {
  await run(join(bin, 'publint'), ['run', '--strict', tarball])
})

test('attw finds nothing for ESM', async () => {
  await run(join(bin, 'attw'), ['--profile', 'esm-only', '--no-color', tarball])
})

test(
  "README's first snippet, and a store of one's own, compile strictly and run in an empty project that installed the package",
  async () => {
    const project = join(folder, 'project')
    const { devDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    const tools = ['typescript', '@types/node'].map((name) => `${name}@${devDependencies[name]}`)
    const compilerOptions = { strict: true, module: 'nodenext', target: 'es2023', types: ['node'], outDir: 'out', rootDir: '.' }
    await mkdir(project)
    await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }))
    await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['snippet.ts', 'store.ts'] }))
    await writeFile(join(project, 'snippet.ts'), await firstSnippet())
    await writeFile(join(project, 'store.ts'), ownStore)

    await run('npm', ['install', tarball, ...tools, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'], project)
    await run(join(project, 'node_modules/.bin/tsc'), [], project)
    await run(process.execPath, ['out/snippet.js'], project)
    expect(existsSync(join(project, 'node_modules/vitest'))).toBe(false)
    expect(await run(process.execPath, ['out/store.js'], project)).toBe('Hello Alice\n')
  },
  patience(180_000),
)

test(
  "README's agent runs in a project that installed the package, the AI SDK and zod",
  async () => {
    const project = join(folder, 'agent')
    const { devDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    await mkdir(project)
    await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'agent', private: true, type: 'module' }))
    for (const [file, to] of [
      ['snippets/agent-readme.ts', 'agent.js'],
      ['snippets/shop.ts', 'shop.js'],
      ['agent/scripted-model.ts', 'scripted-model.js'],
    ] as const) {
      const code = stripTypeScriptTypes(await readFile(join(root, 'examples', file), 'utf8'))
      await writeFile(join(project, to), code.replaceAll(/'(?:\.\.\/agent|\.)\/([\w-]+)\.ts'/g, "'./$1.js'"))
    }
    const packages = [tarball, `ai@${devDependencies['ai']}`, `zod@${devDependencies['zod']}`]
    await run('npm', ['install', ...packages, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'], project)
    await run(process.execPath, ['agent.js'], project)
  },
  patience(180_000),
)

/** Entry points that need no vitest. */
const ownStore = `
import { open, workflow } from 'holdfast'
import { HoldfastError, type Change, type Claim, type ClaimRequest, type Committed, type Store } from 'holdfast/store'
import { createMemoryStore, wrapStore } from 'holdfast/testing'

const inner: Store = wrapStore(createMemoryStore(), {
  before: (act, nth) => {
    if (act === 'commit' && nth === 2) throw new HoldfastError('store_unavailable', 'Down for a moment.', { retryable: true })
  },
})
const store: Store = {
  ...inner,
  claim: (request: ClaimRequest): Promise<readonly Claim[]> => inner.claim(request),
  commit: (changes: readonly Change[]): Promise<readonly Committed[]> => inner.commit(changes),
}
const greet = workflow('greet', (ctx, name: string) => ctx.step('greet', () => 'Hello ' + name))
const hf = await open(store, { workflows: [greet] })
console.log(await hf.run(greet, 'Alice'))
await hf.close()
await store.close()
`

/** Paths of the files in the package. */
async function listPacked(): Promise<string[]> {
  const paths = (await run('tar', ['-tzf', tarball])).trim().split('\n')
  return paths.map((path) => path.replace(/^package\//, ''))
}

/** Where a page links to, from the root; other sites and its own sections left out. */
async function linksOf(page: string): Promise<string[]> {
  // Pictures are shown where the repository is.
  const text = (await readFile(join(root, page), 'utf8')).replaceAll(/```.*?```|!\[.*?\]\(.*?\)/gs, '')
  const links = [...text.matchAll(/\]\(([^)\s#]+)(?:#[^)\s]*)?\)/g)].map(([, link]) => link as string)
  return links.filter((link) => !/^\w+:/.test(link)).map((link) => posix.join(dirname(page), link))
}

async function missing(links: readonly string[]): Promise<string[]> {
  const packed = await listPacked()
  return links.filter((link) => !packed.some((path) => path === link || (link.endsWith('/') && path.startsWith(link))))
}

async function readPages(from: string): Promise<Record<string, string>> {
  const names = await readdir(from)
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(join(from, name), 'utf8')])))
}
