// npm run api: builds, and writes what the package exports to docs/api-report, one page per entry point.
// node scripts/api-report.mjs DIST TARGET: the same for what was built into DIST, to the folder TARGET.
//
// A page has what is exported, then everything else that a user can reach through it. Comments and the names of files are left
// out, so that a page changes when the surface does and at no other time.

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { SyntaxKind } from 'typescript/unstable/ast'
import { API, SymbolFlags } from 'typescript/unstable/sync'

const root = resolve(import.meta.dirname, '..')
const [dist, target = join(root, 'docs/api-report')] = process.argv.slice(2)

if (dist === undefined) buildAndWrite()
else write(resolve(dist))

function buildAndWrite() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-api-'))
  try {
    const built = spawnSync(process.execPath, ['scripts/build.mjs', folder], { cwd: root, stdio: 'inherit' })
    if (built.status === 0) write(folder)
    else process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function write(built) {
  const folder = realpathSync(built)
  const { name, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const entries = Object.entries(exports)
    .filter(([, { types }]) => types !== undefined)
    .map(([path, { types }]) => ({ name: name + path.slice(1), file: join(folder, types.replace('./dist/', '')) }))
  rmSync(target, { recursive: true, force: true })
  mkdirSync(target, { recursive: true })
  const api = new API()
  const snapshot = api.updateSnapshot({ openFiles: entries.map((entry) => entry.file) })
  for (const entry of entries) {
    const declarations = readDeclarations(snapshot.getDefaultProjectForFile(entry.file), entry.file, folder)
    writeFileSync(join(target, `${entry.name.replaceAll('/', '-')}.md`), toPage(entry.name, declarations))
  }
  api.close()
}

function toPage(entryPoint, { exported, reached }) {
  const list = (texts) => `\`\`\`typescript\n${texts.toSorted().join('\n\n')}\n\`\`\``
  const parts = [`# \`${entryPoint}\``, 'Written by `npm run api`.', '## Exported', list(exported)]
  if (reached.length > 0) parts.push('## Reached through these', list(reached))
  return `${parts.join('\n\n')}\n`
}

/** Declarations that an entry point exports, and those of the package that these name, and so on. */
function readDeclarations({ program, checker, emitter }, file, dist) {
  // Paths of declarations are in lower case where the file system does not tell the cases apart.
  const prefix = `${dist.replaceAll('\\', '/').toLowerCase()}/`
  const entries = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)))
  const seen = new Set(entries.map((symbol) => targetOf(symbol).id))
  const found = []
  const exported = entries.map((symbol) => {
    const target = targetOf(symbol)
    const text = print(target, { isValue: !symbol.declarations.some(isTypeOnly) })
    return symbol.name === target.name ? text : `${text}\n// exported as ${symbol.name}`
  })
  const reached = []
  for (let symbol = found.shift(); symbol !== undefined; symbol = found.shift()) reached.push(print(symbol, { isValue: false }))
  return { exported, reached }

  function print(symbol, { isValue }) {
    const statements = statementsOf(symbol)
    follow(statements.flatMap((statement) => identifiersIn(statement, isValue)))
    return statements.map((statement) => (isValue ? emitter.printNode(statement) : printType(statement))).join('\n')
  }

  /** What users can't construct has no constructor here. */
  function printType(statement) {
    const text = emitter.printNode(statement)
    if (statement.kind !== SyntaxKind.ClassDeclaration) return text
    const constructors = statement.members.filter((member) => member.kind === SyntaxKind.Constructor)
    const lines = constructors.map((member) => `    ${emitter.printNode(member).replaceAll('\n', '\n    ')}\n`)
    return `// a type only\n${lines.reduce((rest, line) => rest.replace(line, ''), text)}`
  }

  function follow(identifiers) {
    for (const symbol of checker.getSymbolAtLocation(identifiers)) {
      const target = symbol && targetOf(symbol)
      if (target === undefined || seen.has(target.id) || statementsOf(target).length === 0) continue
      seen.add(target.id)
      found.push(target)
    }
  }

  function targetOf(symbol) {
    return symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
  }

  /** Where the package declares it, at the top of a file: nothing of TypeScript or of other packages, and no part of something else. */
  function statementsOf(symbol) {
    return symbol.declarations
      .filter((declaration) => declaration.path.toLowerCase().startsWith(prefix))
      .map((declaration) => declaration.resolve())
      .map((node) => (node.kind === SyntaxKind.VariableDeclaration ? node.parent.parent : node))
      .filter((node) => node.parent.kind === SyntaxKind.SourceFile)
  }
}

/** `export type { Name }` or `export { type Name }`. */
function isTypeOnly(declaration) {
  const node = declaration.resolve()
  return node.kind === SyntaxKind.ExportSpecifier && (node.isTypeOnly || node.parent.parent.isTypeOnly)
}

function identifiersIn(node, withConstructors) {
  if (node.kind === SyntaxKind.Identifier) return [node]
  if (node.kind === SyntaxKind.Constructor && !withConstructors) return []
  const found = []
  node.forEachChild((child) => void found.push(...identifiersIn(child, withConstructors)))
  return found
}
