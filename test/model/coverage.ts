import type { Case } from './case.ts'
import { constructs, constructsOf, copies, events, nameOfAct, nameOfFault } from './constructs.ts'
import type { Journal } from './journal.ts'

const isCopy = (name: string) => (copies as readonly string[]).includes(name)

/** How often each construct met each act, fault and store. */
export class Coverage {
  readonly #counts = new Map<string, Map<string, number>>()
  readonly #stores = new Set<string>()

  /** Counts what was done and what struck, not what was planned. */
  add(given: Case, journal: Journal): void {
    const met = new Set<string>([given.store])
    for (const note of journal.notes) {
      if (note.of === 'act' && note.stage === 'begins' && !isCopy(nameOfAct(note.act))) met.add(nameOfAct(note.act))
      if (note.of === 'fault') met.add(nameOfFault(note.fault))
      // An act may find nothing to copy, or nothing to go back to.
      if (note.of === 'forked' && note.run !== null) met.add(note.replaced === undefined ? 'fork' : 'replace')
      if (note.of === 'rewound') met.add('rewind')
    }
    this.#stores.add(given.store)
    this.addAll([...constructsOf(given), ...copies.filter((copy) => met.has(copy))], met)
  }

  toJSON(): { stores: string[]; counts: [string, [string, number][]][] } {
    return { stores: [...this.#stores], counts: [...this.#counts].map(([name, row]) => [name, [...row]]) }
  }

  /** Adds what another process has counted. */
  merge({ stores, counts }: ReturnType<Coverage['toJSON']>): void {
    for (const store of stores) this.#stores.add(store)
    for (const [name, row] of counts) {
      const own = this.#counts.get(name) ?? new Map<string, number>()
      this.#counts.set(name, own)
      for (const [event, count] of row) own.set(event, (own.get(event) ?? 0) + count)
    }
  }

  addAll(found: Iterable<string>, met: Iterable<string>): void {
    for (const construct of found) {
      const row = this.#counts.get(construct) ?? new Map<string, number>()
      this.#counts.set(construct, row)
      for (const event of met) row.set(event, (row.get(event) ?? 0) + 1)
    }
  }

  /** The columns, and the rows as numbers. `transaction` is left out where no store takes SQL. */
  rows(more: readonly string[] = []): { columns: string[]; rows: { name: string; counts: number[] }[] } {
    const columns = [...events, ...this.#stores, ...more]
    const hasSql = this.#stores.has('sqlite') || this.#stores.has('postgres')
    const names = [...constructs.map(({ name }) => name), ...copies]
    const rows = names
      .filter((name) => name !== 'transaction' || hasSql)
      .map((name) => ({ name, counts: columns.map((column) => this.#counts.get(name)?.get(column) ?? 0) }))
    return { columns, rows }
  }

  print(more: readonly string[] = []): string {
    const { columns, rows } = this.rows(more)
    const width = 6
    const head = columns.map((column, index) => `${String(index + 1).padStart(width)} ${column}`)
    const legend = head.map((one) => `  ${one}`).join('\n')
    const lines = rows.map(
      ({ name, counts }) => `${name.padEnd(26)}${counts.map((count) => String(count).padStart(width)).join('')}`,
    )
    return [legend, `${' '.repeat(26)}${columns.map((_, index) => String(index + 1).padStart(width)).join('')}`, ...lines].join(
      '\n',
    )
  }

  /** Pairs that never met. SQL has no `transaction` on memory and Redis. */
  missing(more: readonly string[] = []): string[] {
    const { columns, rows } = this.rows(more)
    return rows.flatMap(({ name, counts }) =>
      counts.flatMap((count, index) => {
        const column = columns[index] as string
        const isImpossible = name === 'transaction' && (column === 'memory' || column === 'redis')
        return count === 0 && !isImpossible ? [`${name} × ${column}`] : []
      }),
    )
  }
}
