// How the demo looks in a terminal: colours where supported, lines of at most 80 columns.

import { styleText } from 'node:util'

const isColourful = process.stdout.isTTY === true && !process.env['NO_COLOR']

type Style = Parameters<typeof styleText>[0]

export function paint(style: Style, text: string): string {
  return isColourful ? styleText(style, text, { validateStream: false }) : text
}

const marks = {
  begun: { sign: '●', style: 'cyan' },
  done: { sign: '✓', style: 'green' },
  again: { sign: '↻', style: 'yellow' },
  skipped: { sign: '–', style: 'yellow' },
  wrong: { sign: '✗', style: ['red', 'bold'] },
} as const satisfies Record<string, { sign: string; style: Style }>

export type Mark = keyof typeof marks

export function print(text = ''): void {
  process.stdout.write(`${text}\n`)
}

export function title(text: string, more: string): void {
  print()
  print(` ${paint('bold', text)}  ${paint('dim', more)}`)
}

export function heading(text: string, more = ''): void {
  print()
  print(` ${paint('bold', text)}${more === '' ? '' : `  ${paint('dim', more)}`}`)
}

/** `   1.12 s  ✓ summarize      1.53 s            ████████░░░░░░░░░░░░  40 %`. Without a time the column stays empty. */
export function line(atMs: number | null, mark: Mark, what: string, more = '', right = ''): void {
  const { sign, style } = marks[mark]
  const time = atMs === null ? ' '.repeat(8) : `${seconds(atMs).padStart(6)} s`
  const text = right === '' ? paint('dim', more) : `${paint('dim', more.padEnd(22))}  ${right}`
  print(`  ${paint('dim', time)}  ${paint(style, sign)} ${what.padEnd(14)} ${text}`.trimEnd())
}

/** `████████░░░░░░░░░░░░  40 %`. */
export function bar(fraction: number): string {
  const width = 20
  const full = Math.round(Math.min(1, Math.max(0, fraction)) * width)
  return `${paint('cyan', `${'█'.repeat(full)}${'░'.repeat(width - full)}`)}  ${`${Math.round(fraction * 100)}`.padStart(3)} %`
}

export function claim(mark: 'done' | 'wrong', text: string): void {
  const { sign, style } = marks[mark]
  print(`   ${paint(style, sign)} ${text}`)
}

export interface Column {
  readonly name: string
  readonly isNumber?: boolean
}

/** A table whose columns are as wide as what is in them. A row that is a string is a line across. */
export function table(columns: readonly Column[], rows: readonly (readonly string[] | string)[]): void {
  const cells = rows.filter((row) => typeof row !== 'string')
  const widths = columns.map(({ name }, index) => Math.max(name.length, ...cells.map((row) => row[index]?.length ?? 0)))
  const show = (row: readonly string[]) =>
    columns
      .map(({ isNumber }, index) => (row[index] ?? '')[isNumber === true ? 'padStart' : 'padEnd'](widths[index] ?? 0))
      .join('  ')
  const width = widths.reduce((sum, one) => sum + one + 2, -2)
  print(`   ${paint('dim', show(columns.map(({ name }) => name)).trimEnd())}`)
  print(`   ${paint('dim', '─'.repeat(width))}`)
  for (const row of rows) {
    if (typeof row === 'string') print(`   ${paint('red', `── ${row} `.padEnd(width, '─'))}`)
    else print(`   ${show(row).trimEnd()}`)
  }
}

export function quote(text: string): void {
  for (const one of text.trimEnd().split('\n')) print(one === '' ? '' : `   ${one}`)
}

export function seconds(ms: number): string {
  return (ms / 1_000).toFixed(2)
}

export function duration(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${seconds(ms)} s`
}
