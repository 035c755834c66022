import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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
  const packed = (await run('tar', ['-tzf', tarball])).trim().split('\n')
  expect(packed).toEqual(
    expect.arrayContaining(['package/README.md', 'package/LICENSE', 'package/dist/index.js', 'package/dist/index.d.ts']),
  )
  const strangers = packed.filter(
    (path) => !/^package\/(dist\/.+\.(js|d\.ts)|package\.json|README\.md|LICENSE|CHANGELOG\.md)$/.test(path),
  )
  expect(strangers).toEqual([])
  expect(packed.filter((path) => path.includes('.test.'))).toEqual([])
})

test('declarations and code import each other by the names that were built', async () => {
  const dist = join(folder, 'package/dist')
  for (const file of await readdir(dist, { recursive: true })) {
    if (!/\.(js|d\.ts)$/.test(file)) continue
    const text = await readFile(join(dist, file), 'utf8')
    expect(text, file).not.toMatch(/(from|import\() ?['"]\.[^'"]*\.ts['"]/)
  }
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
