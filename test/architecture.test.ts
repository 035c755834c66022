import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { init, parse } from 'es-module-lexer'
import { beforeAll, describe, expect, test } from 'vitest'

/** What each folder, or file directly in src, may import beside itself. Tests in src may import anything. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  model: [],
  store: ['model'],
  stores: ['model', 'store'], // and never another store
  define: ['model', 'store'],
  memory: ['model', 'store'],
  artifacts: ['model', 'store', 'define'],
  engine: ['model', 'store', 'define', 'memory', 'artifacts'],
  control: ['model', 'store', 'define', 'memory', 'artifacts', 'engine'],
  debug: ['model', 'store', 'engine', 'control'], // reads only
  verify: ['model', 'store', 'artifacts'], // reads only
  retention: ['model', 'store', 'engine', 'artifacts'],
  client: ['model', 'store', 'define', 'memory', 'artifacts', 'engine', 'control', 'debug', 'verify', 'retention'],
  worker: ['model', 'store', 'define', 'engine', 'retention'],
  notify: ['model', 'define', 'engine'],
  testing: ['model', 'store', 'stores', 'index.ts'], // the reference among the stores; else what a user could use
  server: ['model', 'client', 'index.ts'],
  adapters: ['index.ts'], // what a user could use, and never another adapter
  cli: ['model', 'store', 'define', 'engine', 'control', 'debug', 'client', 'worker', 'server', 'open.ts', 'index.ts'],
  'node-version.ts': ['model'],
  'stderr-logger.ts': ['model'],
  'open.ts': [
    'model',
    'store',
    'stores',
    'define',
    'memory',
    'artifacts',
    'engine',
    'control',
    'client',
    'worker',
    'notify',
    'retention',
    'node-version.ts',
    'stderr-logger.ts',
  ],
  'copy-store.ts': ['model', 'store', 'artifacts', 'control', 'client', 'open.ts'],
  'index.ts': [
    'model',
    'store',
    'define',
    'memory',
    'artifacts',
    'engine',
    'control',
    'debug',
    'verify',
    'retention',
    'client',
    'worker',
    'notify',
    'open.ts',
    'copy-store.ts',
  ],
}
/** Inside the engine: what each folder never imports, types included. */
const neverInEngine: Readonly<Record<string, readonly string[]>> = {
  // A call sees the run that it belongs to through execution/call-host.ts.
  'engine/calls': ['engine/execution/execution.ts', 'engine/execute-run.ts', 'engine/load-run.ts'],
  'engine/execution': ['engine/execute-run.ts', 'engine/load-run.ts'],
  'engine/replay': ['engine/execution'],
  'engine/state': ['engine/calls', 'engine/execution'],
  'engine/limits': ['engine/execution/execution.ts'],
  'engine/reports': ['engine/calls', 'engine/execution'],
  'engine/undo': ['engine/execution/execution.ts'],
  'engine/waiting': ['engine/calls', 'engine/execution/execution.ts'],
  'engine/writing': ['engine/execution/execution.ts'],
}
const foldersOfStrangers = ['stores', 'adapters']
const forbiddenWords = ['utils', 'helpers', 'common', 'lib', 'types', 'manager']

/** Path inside src, with / as separator, to source text. */
type Files = Readonly<Record<string, string>>

beforeAll(() => init)

test('imports in src point the right way, never round in a circle, and every file is named after a noun', () => {
  const files = readSources(join(import.meta.dirname, '../src'))
  expect(Object.keys(files).length).toBeGreaterThan(0)
  expect(problemsOf(files)).toEqual([])
})

describe('the check itself', () => {
  test('accepts imports that point towards model', () => {
    const files = {
      'model/run.ts': "import { crc32 } from 'node:zlib'",
      'store/store.ts': "import type { Run } from '../model/run.ts'",
      'stores/sqlite/claim.ts': "import { run } from '../../model/run.ts'\nexport * from './rows.ts'",
      'stores/sqlite/rows.ts': "import type { Store } from '../../store/store.ts'",
      'engine/execute-run.ts': "import type { Store } from '../store/store.ts'",
      'open.ts': "const { claim } = await import('./stores/sqlite/claim.ts')",
    }
    expect(problemsOf(files)).toEqual([])
  })

  test.each([
    ['an import', "import { x } from '../stores/memory/x.ts'"],
    ['an import over several lines', "import {\n  x, // a comment with from 'y'\n  y,\n} from '../stores/memory/x.ts'"],
    ['an import of a type', "import type { X } from '../stores/memory/x.ts'"],
    ['an import of nothing', "import '../stores/memory/x.ts'"],
    ['a re-export', "export { x } from '../stores/memory/x.ts'"],
    ['an import at run time', "const x = await import('../stores/memory/x.ts')"],
    ['the type of an import', "let x: typeof import('../stores/memory/x.ts')"],
  ])('refuses %s that goes from the engine to a store', (_, source) => {
    expect(problemsOf({ 'engine/a.ts': source, 'stores/memory/x.ts': '' })).toEqual([
      'engine/a.ts imports stores/memory/x.ts: engine may import model, store, define, memory, artifacts',
    ])
  })

  test.each([
    ['model/a.ts', 'store/b.ts', 'model may import nothing of ours'],
    [
      'client/a.ts',
      'stores/redis/b.ts',
      'client may import model, store, define, memory, artifacts, engine, control, debug, verify, retention',
    ],
    ['worker/a.ts', 'stores/redis/b.ts', 'worker may import model, store, define, engine, retention'],
    ['worker/a.ts', 'client/b.ts', 'worker may import model, store, define, engine, retention'],
    ['adapters/ai/a.ts', 'engine/b.ts', 'adapters may import index.ts'],
    ['stores/redis/a.ts', 'stores/sqlite/b.ts', 'stores/redis may not import stores/sqlite'],
    ['adapters/ai/a.ts', 'adapters/mcp/b.ts', 'adapters/ai may not import adapters/mcp'],
  ])('refuses an import from %s to %s', (from, to, reason) => {
    const specifier = posix.relative(posix.dirname(from), to)
    const source = `import { b } from '${specifier.startsWith('.') ? specifier : `./${specifier}`}'`
    expect(problemsOf({ [from]: source, [to]: '' })).toEqual([`${from} imports ${to}: ${reason}`])
  })

  test('refuses a call that imports the execution, and a circle of types in the engine', () => {
    expect(
      problemsOf({
        'engine/calls/step.ts': "import type { Execution } from '../execution/execution.ts'",
        'engine/execution/execution.ts': '',
      }),
    ).toEqual([
      'engine/calls/step.ts imports engine/execution/execution.ts: engine/calls never imports engine/execution/execution.ts',
    ])
    const circle = {
      'engine/execution/a.ts': "import type { B } from './b.ts'",
      'engine/execution/b.ts': "import type { A } from './a.ts'",
    }
    expect(problemsOf(circle)).toEqual(['circle: engine/execution/a.ts → engine/execution/b.ts → engine/execution/a.ts'])
  })

  test('refuses a folder or file that the table does not know', () => {
    expect(problemsOf({ 'queue/a.ts': '' })).toEqual(['queue/a.ts: queue is not in the table of test/architecture.test.ts'])
    expect(problemsOf({ 'plan.ts': '' })).toEqual(['plan.ts: plan.ts is not in the table of test/architecture.test.ts'])
  })

  test('refuses an import of a file that is not there', () => {
    expect(problemsOf({ 'model/a.ts': "import { b } from './b.js'" })).toEqual([
      'model/a.ts imports model/b.js, which is not a file in src',
    ])
  })

  test('refuses a circle of run-time imports, named once, and not one that a type import closes', () => {
    const files = {
      'model/a.ts': "import { b } from './b.ts'",
      'model/b.ts': "import { type C, c } from './c.ts'",
      'model/c.ts': "export { a } from './a.ts'",
    }
    expect(problemsOf(files)).toEqual(['circle: model/a.ts → model/b.ts → model/c.ts → model/a.ts'])
    expect(problemsOf({ ...files, 'model/c.ts': "export type { A } from './a.ts'" })).toEqual([])
  })

  test.each(['model/utils.ts', 'model/lib/run.ts', 'worker/lease-manager.ts', 'stores/sqlite/types.ts', 'model/helpers.test.ts'])(
    'refuses the name %s',
    (path) => {
      expect(problemsOf({ [path]: '' })).toEqual([expect.stringContaining(`${path}: the name`)])
    },
  )

  test('lets a test import anything, and reads no import out of a comment or a string', () => {
    expect(problemsOf({ 'stores/memory/x.ts': '', 'model/a.test.ts': "import { x } from '../stores/memory/x.ts'" })).toEqual([])
    const quoted = ["// import '../stores/memory/x.ts'", "const a = `\nimport '../stores/memory/x.ts'\n`", 'const b = /[`"]/']
    expect(problemsOf({ 'stores/memory/x.ts': '', 'model/a.ts': quoted.join('\n') })).toEqual([])
  })
})

function problemsOf(files: Files): string[] {
  const imports = Object.keys(files).flatMap((from) => (isTest(from) ? [] : importsOf(from, files[from]!)))
  return [
    ...Object.keys(files).flatMap(problemsOfName),
    ...imports.flatMap((edge) => problemsOfDirection(edge, files)),
    ...circlesOf(imports.filter((edge) => edge.isRuntime || (isInEngine(edge.from) && isInEngine(edge.to)))),
  ]
}

/** Where types count for circles, too: a part of the engine that needs another's type in a circle should name what it needs of it. */
function isInEngine(path: string): boolean {
  return path.startsWith('engine/') && !path.startsWith('engine/replay/')
}

function problemsOfName(path: string): string[] {
  const words = path.replace(/(\.test)?\.ts$/, '').split(/[/-]/)
  const forbidden = words.filter((word) => forbiddenWords.includes(word))
  const problems = forbidden.map((word) => `${path}: the name "${word}" says nothing; which noun is missing?`)
  if (layerOf(path) in mayImport || isTest(path)) return problems
  return [...problems, `${path}: ${layerOf(path)} is not in the table of test/architecture.test.ts`]
}

function problemsOfDirection({ from, to }: Import, files: Files): string[] {
  if (!(to in files)) return [`${from} imports ${to}, which is not a file in src`]
  const [layer, target] = [layerOf(from), layerOf(to)]
  if (layer === target && layer === 'engine') {
    const folder = from.split('/').slice(0, 2).join('/')
    const never = neverInEngine[folder]?.find((path) => to === path || to.startsWith(`${path}/`))
    return never === undefined ? [] : [`${from} imports ${to}: ${folder} never imports ${never}`]
  }
  if (layer === target) {
    const [own, other] = [from, to].map((path) => path.split('/').slice(0, 2).join('/'))
    return foldersOfStrangers.includes(layer) && own !== other ? [`${from} imports ${to}: ${own} may not import ${other}`] : []
  }
  const allowed = mayImport[layer] ?? []
  return allowed.includes(target) ? [] : [`${from} imports ${to}: ${layer} may import ${allowed.join(', ') || 'nothing of ours'}`]
}

function circlesOf(imports: readonly Import[]): string[] {
  const targets = new Map<string, string[]>()
  for (const { from, to } of imports) targets.set(from, [...(targets.get(from) ?? []), to])
  const finished = new Set<string>()
  const circles: string[] = []
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) {
      circles.push(`circle: ${[...trail.slice(trail.indexOf(path)), path].join(' → ')}`)
    } else if (!finished.has(path)) {
      for (const target of targets.get(path) ?? []) visit(target, [...trail, path])
      finished.add(path)
    }
  }
  for (const path of targets.keys()) visit(path, [])
  return circles
}

interface Import {
  readonly from: string
  readonly to: string
  readonly isRuntime: boolean
}

/** The imports of our own files. `import { type A }` counts as run time: under verbatimModuleSyntax the import stays. */
function importsOf(from: string, source: string): Import[] {
  const [imports] = parse(source, from)
  return imports
    .filter((found) => found.n?.startsWith('.'))
    .map((found) => ({
      from,
      to: posix.join(posix.dirname(from), found.n!),
      isRuntime:
        !/^(import|export)\s+type\b/.test(source.slice(found.ss, found.se)) && !/\btypeof\s+$/.test(source.slice(0, found.ss)),
    }))
}

function layerOf(path: string): string {
  return path.split('/')[0]!
}

function isTest(path: string): boolean {
  return path.endsWith('.test.ts')
}

function readSources(folder: string): Files {
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))
  return Object.fromEntries(paths.map((path) => [path.replaceAll('\\', '/'), readFileSync(join(folder, path), 'utf8')]))
}
