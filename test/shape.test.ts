import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Files, measureShape, readSources } from '../scripts/shape.ts'

test('nothing in src is larger than its limit', () => {
  expect(excessOf(readSources(join(import.meta.dirname, '../src')))).toEqual({})
})

describe('the measure itself', () => {
  test('counts the lines of a file in the engine, and of no other', () => {
    const lines = '\n'.repeat(400)
    expect(excessOf({ 'engine/a.ts': `${lines}a()`, 'engine/b.ts': `${lines}`, 'client/a.ts': `${lines}a()` })).toEqual({
      'lines of a file in src/engine': ['engine/a.ts'],
    })
  })

  test('counts the lines of a class', () => {
    const classOf = (lines: number): string => `export class A {${'\n'.repeat(lines - 1)}}`
    expect(excessOf({ 'client/a.ts': classOf(300), 'client/b.ts': classOf(301) })).toEqual({
      'lines of a class': ['client/b.ts A'],
    })
  })

  test.each([
    ['a function', 'function f() {…}', 'f'],
    ['an arrow function', 'const f = () => {…}', 'f'],
    ['a method', 'class A { f() {…} }', 'f'],
    ['a private method', 'class A { #f() {…} }', '#f'],
    ['a function in a function', 'function f() { return function g() {…} }', 'g'],
    ['a callback', 'list.forEach(() => {…})', 'forEach'],
    ['a callback after a title', "describe('a run', () => {…})", "describe('a run')"],
  ])('counts the lines of %s', (_, source, name) => {
    const withLines = (lines: number): string => source.replace('…', '\n'.repeat(lines - 1))
    expect(excessOf({ 'client/a.ts': withLines(70) })).toEqual({})
    expect(excessOf({ 'client/a.ts': withLines(71) })).toEqual({ 'lines of a function': [`client/a.ts ${name}`] })
  })

  test('counts the lines of a nested function or a text once', () => {
    const nested = `  const g = () => {${'\n'.repeat(50)}}\n`
    const text = `  const sql = \`${'\n'.repeat(149)}\`\n`
    expect(excessOf({ 'client/a.ts': `function f() {\n${nested.repeat(3)}${text}}` })).toEqual({})
    expect(excessOf({ 'client/a.ts': `const sql = \`${'\n'.repeat(150)}\`` })).toEqual({
      'lines of a text (SQL, Lua)': ['client/a.ts sql'],
    })
  })

  test('counts the public members of the execution and those of its port', () => {
    const list = (count: number, member: (number: number) => string): string =>
      Array.from({ length: count }, (_, number) => member(number)).join('\n')
    const execution = (count: number): string =>
      `class Execution { constructor() {} #a = 1; private b = 1; get c0() { return 1 }\n${list(count, (number) => `c${number} = 1`)} }`
    expect(excessOf({ 'engine/a.ts': execution(20) })).toEqual({})
    expect(excessOf({ 'engine/a.ts': execution(21) })).toEqual({ 'public members of Execution': ['engine/a.ts Execution'] })
    expect(excessOf({ 'engine/a.ts': `export interface CallHost { ${list(16, (number) => `c${number}: 1`)} }` })).toEqual({
      'members of CallHost': ['engine/a.ts CallHost'],
    })
    expect(measureShape({}).find(({ name }) => name === 'members of CallHost')?.value).toBeUndefined()
  })

  test.each([
    ['an import', "import { b } from './b.ts'"],
    ['an import of a type', "import type { B } from './b.ts'"],
    ['a re-export', "export * from './b.ts'"],
    ['a re-export of a type', "export type { B } from './b.ts'"],
    ['an import at run time', "const b = import('./b.ts')"],
    ['the type of an import', "let b: import('./b.ts').B"],
  ])('finds a cycle that %s closes', (_, source) => {
    expect(excessOf({ 'model/a.ts': source, 'model/b.ts': "import { c } from './c.ts'", 'model/c.ts': '' })).toEqual({})
    expect(excessOf({ 'model/a.ts': source, 'model/b.ts': "import { a } from './a.ts'" })).toEqual({
      'import cycles, types included': ['model/a.ts, model/b.ts'],
    })
  })
})

function excessOf(files: Files): Record<string, string[]> {
  const figures = measureShape(files).filter(({ excess }) => excess.length > 0)
  return Object.fromEntries(figures.map(({ name, excess }) => [name, excess.map((measured) => measured.name).sort()]))
}
