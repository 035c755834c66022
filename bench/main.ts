// Runs one benchmark by name, or lists them: npm run bench -- NAME

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const [name, ...args] = process.argv.slice(2)
const benchmarks = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && file !== 'main.ts')
  .map((file) => ({ name: file.slice(0, -'.ts'.length), file: join(import.meta.dirname, file) }))
const chosen = benchmarks.find((benchmark) => benchmark.name === name)

if (chosen === undefined) {
  if (name !== undefined) console.error(`There is no benchmark "${name}".`)
  console.error('Usage: npm run bench -- NAME, where NAME is one of')
  for (const benchmark of benchmarks) console.error(`  ${benchmark.name.padEnd(20)} ${descriptionOf(benchmark.file)}`)
  if (benchmarks.length === 0) console.error('  (none yet)')
  process.exitCode = name === undefined ? 0 : 1
} else {
  const result = spawnSync(process.execPath, [...process.execArgv, chosen.file, ...args], { stdio: 'inherit' })
  if (result.error) throw result.error
  process.exitCode = result.status ?? 1
}

/** The first line of the file, if it is a comment. */
function descriptionOf(file: string): string {
  const [firstLine = ''] = readFileSync(file, 'utf8').split('\n', 1)
  return firstLine.startsWith('//') ? firstLine.slice(2).trim() : ''
}
