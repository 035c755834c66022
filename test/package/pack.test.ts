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
  "README's first snippet compiles strictly and runs in an empty project that installed the package",
  async () => {
    const project = join(folder, 'project')
    const { devDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    const tools = ['typescript', '@types/node'].map((name) => `${name}@${devDependencies[name]}`)
    const compilerOptions = { strict: true, module: 'nodenext', target: 'es2023', types: ['node'], outDir: 'out', rootDir: '.' }
    await mkdir(project)
    await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }))
    await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['snippet.ts'] }))
    await writeFile(join(project, 'snippet.ts'), await firstSnippet())

    await run('npm', ['install', tarball, ...tools, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'], project)
    await run(join(project, 'node_modules/.bin/tsc'), [], project)
    await run(process.execPath, ['out/snippet.js'], project)
  },
  patience(180_000),
)

async function readPages(from: string): Promise<Record<string, string>> {
  const names = await readdir(from)
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(join(from, name), 'utf8')])))
}
