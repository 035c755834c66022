// npm run shape: the sizes that keep the code readable, each next to its limit. test/shape.test.ts holds them.
//
// Lines are those of the file, comments and blank lines included. The lines inside a nested function, or inside a text over
// several lines (SQL, Lua), count for that function or text and not for the function around it. Tests in src are left out.

import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { parseSync } from 'vite'

/** Path inside src, with / as separator, to source text. */
export type Files = Readonly<Record<string, string>>

/** One thing that has a limit. */
export interface Figure {
  readonly name: string
  readonly limit: number
  /** The largest, the count, or `undefined` if there is nothing to measure. */
  readonly value: number | undefined
  /** What is over the limit, with its size. Empty if nothing is. */
  readonly excess: readonly Measured[]
}

interface Measured {
  readonly name: string
  readonly size: number
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly id?: Node | null
  readonly key?: Node
  readonly name?: unknown
  readonly value?: unknown
  readonly kind?: string
  readonly accessibility?: string | null
  readonly source?: Node | null
  readonly callee?: Node
  readonly property?: Node
  readonly arguments?: readonly Node[]
  readonly body?: unknown
}

interface Source {
  readonly path: string
  readonly text: string
  readonly program: Node
  readonly lineAt: (offset: number) => number
}

export function measureShape(files: Files): Figure[] {
  const sources = Object.keys(files)
    .filter((path) => !path.endsWith('.test.ts'))
    .sort()
    .map((path) => parse(path, files[path]!))
  const engine = sources.filter(({ path }) => path.startsWith('engine/'))
  const bodies = sources.map(measureFunctionsAndTexts)
  return [
    largest('lines of a file in src/engine', 400, engine.map(measureFile)),
    largest('lines of a class', 300, sources.flatMap(measureClasses)),
    largest(
      'lines of a function',
      70,
      bodies.flatMap(({ functions }) => functions),
    ),
    largest(
      'lines of a text (SQL, Lua)',
      150,
      bodies.flatMap(({ texts }) => texts),
    ),
    largest(
      'public members of Execution',
      20,
      sources.flatMap((source) => measureMembers(source, 'Execution')),
    ),
    largest(
      'members of CallHost',
      15,
      sources.flatMap((source) => measureMembers(source, 'CallHost')),
    ),
    importCycles(sources),
  ]
}

function largest(name: string, limit: number, measured: readonly Measured[]): Figure {
  const excess = measured.filter(({ size }) => size > limit).sort((a, b) => b.size - a.size)
  return { name, limit, value: measured.length === 0 ? undefined : Math.max(...measured.map(({ size }) => size)), excess }
}

function importCycles(sources: readonly Source[]): Figure {
  const groups = groupsInCycles(new Map(sources.map((source) => [source.path, importsOf(source)])))
  const excess = groups.map((paths) => ({ name: paths.join(', '), size: paths.length }))
  return { name: 'import cycles, types included', limit: 0, value: groups.length, excess }
}

function measureFile({ path, text, lineAt }: Source): Measured {
  return { name: path, size: lineAt(text.trimEnd().length) }
}

function measureClasses(source: Source): Measured[] {
  const classes = descendantsOf(source.program).filter((node) => /^Class(Declaration|Expression)$/.test(node.type))
  return classes.map((node) => ({ name: `${source.path} ${nameOf(node.id)}`, size: heightOf(source, node) }))
}

function measureFunctionsAndTexts(source: Source): { functions: Measured[]; texts: Measured[] } {
  const functions: Measured[] = []
  const texts: Measured[] = []
  visit(source.program, '')
  return { functions, texts }

  /** Returns how many lines of the node belong to a function or a text in it. */
  function visit(node: Node, name: string): number {
    const lines = heightOf(source, node)
    const innerLines = childrenOf(node).reduce((sum, child) => sum + visit(child, nameOfChild(node, child) ?? name), 0)
    const measured = (size: number): Measured => ({ name: `${source.path} ${nameOf(node.id) ?? name}`, size })
    if (isFunction(node)) functions.push(measured(lines - innerLines))
    else if (node.type === 'TemplateLiteral') texts.push(measured(lines))
    else return innerLines
    return lines - 1 // The first line belongs to what is around it.
  }
}

function isFunction({ type }: Node): boolean {
  return /^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(type)
}

/** The name of a function or a text by its place: a method, a property, a variable, or what it is passed to. */
function nameOfChild(parent: Node, child: Node): string | undefined {
  if (child === parent.key || child === parent.id) return undefined
  if (/^(MethodDefinition|PropertyDefinition|Property)$/.test(parent.type)) return nameOf(parent.key)
  if (parent.type === 'VariableDeclarator') return nameOf(parent.id)
  if (parent.type !== 'CallExpression') return undefined
  const title = parent.arguments?.find(({ type, value }) => type === 'Literal' && typeof value === 'string')
  return title === undefined ? nameOf(parent.callee) : `${nameOf(parent.callee)}('${title.value}')`
}

/** Of a class or an interface with this name; what is private or protected does not count. */
function measureMembers(source: Source, name: string): Measured[] {
  const declarations = descendantsOf(source.program).filter(
    (node) => /^(ClassDeclaration|TSInterfaceDeclaration)$/.test(node.type) && nameOf(node.id) === name,
  )
  return declarations.map((node) => {
    const members = (node.body as { readonly body: Node[] }).body.filter(isPublic)
    return { name: `${source.path} ${name}`, size: new Set(members.map(({ key }) => nameOf(key))).size }
  })
}

function isPublic(member: Node): boolean {
  const isHidden = member.accessibility === 'private' || member.accessibility === 'protected'
  return !isHidden && member.kind !== 'constructor' && member.key?.type !== 'PrivateIdentifier'
}

function nameOf(node: Node | null | undefined): string | undefined {
  if (!node) return undefined
  const { type, name, value, property } = node
  if (type === 'PrivateIdentifier') return `#${name}`
  if (type === 'MemberExpression') return nameOf(property)
  return typeof name === 'string' ? name : typeof value === 'string' ? value : undefined
}

function importsOf({ path, program }: Source): string[] {
  const specifiers = descendantsOf(program).flatMap((node) => {
    const isImport = /^(ImportDeclaration|ExportNamedDeclaration|ExportAllDeclaration|ImportExpression|TSImportType)$/.test(
      node.type,
    )
    const specifier = isImport ? nameOf(node.source) : undefined
    return specifier?.startsWith('.') ? [specifier] : []
  })
  return specifiers.map((specifier) => posix.join(posix.dirname(path), specifier))
}

/** Groups of files of which each imports each other, directly or not (the strongly connected components, by Tarjan). */
function groupsInCycles(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const order = new Map<string, number>()
  const earliest = new Map<string, number>()
  const open: string[] = []
  const groups: string[][] = []
  for (const path of imports.keys()) if (!order.has(path)) visit(path)
  return groups

  function visit(path: string): void {
    order.set(path, order.size)
    earliest.set(path, order.get(path)!)
    open.push(path)
    for (const target of imports.get(path) ?? []) {
      if (!order.has(target)) visit(target)
      if (open.includes(target)) earliest.set(path, Math.min(earliest.get(path)!, earliest.get(target)!))
    }
    if (earliest.get(path) !== order.get(path)) return
    const group = open.splice(open.indexOf(path))
    if (group.length > 1 || imports.get(path)?.includes(path)) groups.push(group.sort())
  }
}

function parse(path: string, text: string): Source {
  const { program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]!.message}`)
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)]
  const lineAt = (offset: number): number => starts.findLastIndex((start) => start <= offset) + 1
  return { path, text, program: program as unknown as Node, lineAt }
}

function heightOf({ lineAt }: Source, { start, end }: Node): number {
  return lineAt(end) - lineAt(start) + 1
}

function descendantsOf(node: Node): Node[] {
  return childrenOf(node).flatMap((child) => [child, ...descendantsOf(child)])
}

function childrenOf(node: Node): Node[] {
  return Object.values(node)
    .flat()
    .filter((value): value is Node => typeof (value as Node | null)?.type === 'string')
}

export function readSources(folder: string): Files {
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))
  return Object.fromEntries(paths.map((path) => [path.replaceAll('\\', '/'), readFileSync(join(folder, path), 'utf8')]))
}

function print(figures: readonly Figure[]): void {
  const width = Math.max(...figures.map(({ name }) => name.length))
  for (const { name, limit, value, excess } of figures) {
    const mark = value === undefined ? '–' : excess.length === 0 ? '✓' : '✗'
    const over = excess.length === 0 ? '' : `   ${excess.length} over`
    console.log(`${mark} ${name.padEnd(width)}   ${String(value ?? 'not there').padStart(9)}   at most ${limit}${over}`)
    for (const measured of excess) console.log(`    ${String(measured.size).padStart(5)}  ${measured.name}`)
  }
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  const figures = measureShape(readSources(join(import.meta.dirname, '../src')))
  print(figures)
  if (figures.some(({ excess }) => excess.length > 0)) process.exitCode = 1
}
