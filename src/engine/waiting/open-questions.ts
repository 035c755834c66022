import type { StandardSchemaV1 } from '@standard-schema/spec'

/** Beyond this many the oldest are forgotten: an answer to them is then checked when the run takes it. */
const maxQuestions = 10_000

/** Schemas of questions that runs of this process have asked, so that an answer given here is checked before it counts. */
export class OpenQuestions {
  readonly #schemas = new Map<string, StandardSchemaV1>()

  add(owner: string, key: string, schema: StandardSchemaV1): void {
    this.#schemas.set(keyOf(owner, key), schema)
    const oldest = this.#schemas.keys().next().value
    if (this.#schemas.size > maxQuestions && oldest !== undefined) this.#schemas.delete(oldest)
  }

  schema(owner: string, key: string): StandardSchemaV1 | undefined {
    return this.#schemas.get(keyOf(owner, key))
  }

  delete(owner: string, key: string): void {
    this.#schemas.delete(keyOf(owner, key))
  }
}

function keyOf(owner: string, key: string): string {
  return JSON.stringify([owner, key])
}
