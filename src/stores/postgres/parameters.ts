/** A parameter of one of the store's functions. */
export interface Parameter {
  readonly name: string
  readonly type: string
}

/** For the head of a function. */
export function declareSql(parameters: readonly Parameter[]): string {
  return parameters.map(({ name, type }) => `${name} ${type}`).join(', ')
}

/** A call of a function, with values in the order of its parameters. */
export function callSql(name: string, parameters: readonly Parameter[]): string {
  return `holdfast.${name}(${parameters.map((_, at) => `$${at + 1}`).join(', ')})`
}

/** Parameters with their types, of which the head of a function, its call and the values are made. */
export class ParameterList<const Types extends Readonly<Record<string, string>>> {
  readonly types: Types
  readonly parameters: readonly Parameter[]
  readonly #names: readonly (keyof Types)[]

  constructor(types: Types) {
    this.types = types
    this.#names = Object.keys(types)
    this.parameters = Object.entries(types).map(([name, type]) => ({ name, type }))
  }

  /** In the order of the list. */
  values(byName: Readonly<Record<keyof Types, unknown>>): unknown[] {
    return this.#names.map((name) => byName[name])
  }
}

/** What every function that writes begins with: its writer's id and number (writes.ts). */
export const writerParameters = new ParameterList({ p_writer: 'bigint', p_batch: 'bigint' }).parameters
