import { readArtifact } from '../artifacts/artifact-records.ts'
import type { Contents } from '../artifacts/contents.ts'
import { placeOf } from '../model/artifact.ts'
import { HoldfastError } from '../model/errors.ts'
import type { KeyedRecord } from '../model/record.ts'
import { type Damage, damageTo } from './damage.ts'
import { attempt, type Source } from './findings.ts'

/** The contents of artifacts, each read once, whatever refers to it. */
export class ArtifactCheck {
  readonly #source: Source
  readonly #contents: Contents
  readonly #checked = new Map<string, string | null>()
  artifacts = 0
  bytes = 0
  readonly damaged: Damage[] = []

  constructor(source: Source, contents: Contents) {
    this.#source = source
    this.#contents = contents
  }

  async check(record: KeyedRecord): Promise<void> {
    const { owner, threadId } = record
    const { id, name, version, type, sha256, size } = readArtifact(this.#source.codec, record)
    this.artifacts++
    const place = placeOf(type)
    const content = JSON.stringify([owner, place, sha256])
    let problem = this.#checked.get(content)
    if (problem === undefined) {
      problem = await this.#problemOf(() => this.#contents.open(owner, place, sha256, size))
      this.#checked.set(content, problem)
      this.bytes += size
    }
    if (problem === null) return
    const what = `Artifact "${id}" (${name}, version ${version}): ${problem}`
    this.damaged.push(damageTo({ owner, threadId: threadId ?? '' }, 'artifact', what))
  }

  /** Content in a place that this process was opened without can't be looked at. */
  async #problemOf(read: () => Promise<unknown>): Promise<string | null> {
    try {
      const found = await attempt(this.#source.store, read)
      return 'damage' in found ? found.damage.message : null
    } catch (error) {
      if (error instanceof HoldfastError && error.details['backend'] !== undefined) return error.message
      throw error
    }
  }
}
