import { BigintColumn, BooleanColumn, FloatColumn, IntegerColumn, TextColumn } from './columns.ts'
import type { Parameter } from './parameters.ts'
import { PayloadColumns } from './payload-columns.ts'

/** Kinds of columns, and what encodes each. A payload is two columns: NAME for text, NAME_bytes for bytes. */
const encoders = {
  int: IntegerColumn,
  bigint: BigintColumn,
  float8: FloatColumn,
  boolean: BooleanColumn,
  text: TextColumn,
  payload: PayloadColumns,
} as const

type Kind = keyof typeof encoders
type Kinds = Readonly<Record<string, Kind>>

/** What encodes each column, by name. */
export type Encoders<Columns extends Kinds> = { readonly [Name in keyof Columns]: InstanceType<(typeof encoders)[Columns[Name]]> }

/**
 * Rows that go to a function of the store as parallel arrays, one per column. The parameters of the function, the rows in its statements
 * and the arrays that the client sends are all made of one list, so that no position is counted by hand.
 */
export class ColumnList<const Columns extends Kinds> {
  readonly #prefix: string
  readonly columns: Columns
  readonly #names: readonly (keyof Columns & string)[]
  readonly #parameterNames: readonly string[]

  /** `prefix` tells the parameters of this list from those of others. The first column has a value in every row. */
  constructor(prefix: string, columns: Columns) {
    this.#prefix = prefix
    this.columns = columns
    this.#names = Object.keys(columns)
    this.#parameterNames = this.#names.flatMap((name) => this.#columnNames(name).map((column) => `${prefix}_${column}`))
  }

  /** For the head of a function: `c_owner text[], …`. */
  get parameters(): readonly Parameter[] {
    const types = this.#names.flatMap((name) => {
      const kind = this.columns[name] as Kind
      return kind === 'payload' ? ['text[]', 'bytea[]'] : [`${kind}[]`]
    })
    return this.#parameterNames.map((name, at) => ({ name, type: types[at] as string }))
  }

  /**
   * The rows, for FROM, with the columns that are named. `also` has arrays among the function's variables that are read beside them, by the
   * names they get; `number` is a column that counts the rows from 1.
   *
   * Elements are read by their index, which inside of a function is direct access; `unnest` of many arrays would be a scan of each.
   */
  rowsSql(
    names: readonly (keyof Columns & string)[],
    { as, also = {}, number = 'number' }: { as: string; also?: Readonly<Record<string, string>>; number?: string },
  ): string {
    const columns = names.flatMap((name) => this.#columnNames(name))
    const elements = [
      ...columns.map((column) => `${this.#prefix}_${column}[n.at::int] AS ${column}`),
      ...Object.entries(also).map(([name, array]) => `${array}[n.at::int] AS ${name}`),
      `n.at AS ${number}`,
    ]
    return `(SELECT ${elements.join(', ')} FROM unnest(${this.#parameterNames[0]}) WITH ORDINALITY AS n(value, at)) ${as}`
  }

  /** For about `count` rows. */
  createEncoders(count: number): Encoders<Columns> {
    return Object.fromEntries(
      this.#names.map((name) => [name, new encoders[this.columns[name] as Kind](count)]),
    ) as Encoders<Columns>
  }

  /** Values for the parameters. */
  encode(columns: Encoders<Columns>): unknown[] {
    const values: unknown[] = []
    for (const name of this.#names) {
      const column = columns[name]
      if (column instanceof PayloadColumns) values.push(...column.encode())
      else values.push((column as IntegerColumn).encode())
    }
    return values
  }

  /** Values for no rows. */
  get noRows(): unknown[] {
    return this.#parameterNames.map(() => null)
  }

  #columnNames(name: keyof Columns & string): string[] {
    return this.columns[name] === 'payload' ? [name, `${name}_bytes`] : [name]
  }
}
