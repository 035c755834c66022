import { ArtifactReader } from '../../artifacts/artifact-reader.ts'
import { putArtifact } from '../../artifacts/artifact-records.ts'
import { chunksOf } from '../../artifacts/content-chunks.ts'
import type { HeldContent } from '../../artifacts/contents.ts'
import { loggedArtifact, newArtifact } from '../../artifacts/new-artifact.ts'
import type {
  ArtifactFilter,
  ArtifactPage,
  ArtifactReadOptions,
  ArtifactStream,
  Artifacts,
  ArtifactToSave,
  NamedArtifact,
} from '../../define/artifacts.ts'
import { type Artifact, accessDenied, checkRequest, mayRead, placeOf } from '../../model/artifact.ts'
import type { NewEvent } from '../../model/event.ts'
import type { RecordChange } from '../../model/record.ts'
import type { CallHost } from '../execution/call-host.ts'
import { reportLateWrite } from '../execution/end-errors.ts'
import type { RecordWrites } from '../writing/record-writes.ts'
import type { Call } from './calls.ts'

interface Body {
  readonly writes: { readonly isOver: boolean }
  readonly signal: AbortSignal
}

/**
 * The artifacts of one attempt of a step. Their bytes are durable when `save` resolves; the artifacts are seen by this attempt's own reads, and
 * committed with its result. What a failed attempt has saved refers to nothing, and is collected.
 */
export class AttemptArtifacts implements Artifacts, RecordWrites {
  readonly #host: CallHost
  readonly #call: Call
  readonly #attempt: number
  readonly #body: Body
  readonly #reader: ArtifactReader
  readonly #saved: { readonly artifact: Artifact; content: HeldContent }[] = []
  readonly #deleted = new Map<string, Artifact>()
  #begun = 0

  constructor(host: CallHost, call: Call, attempt: number, body: Body) {
    const { owner, threadId, runId, engine } = host.run
    this.#host = host
    this.#call = call
    this.#attempt = attempt
    this.#body = body
    this.#reader = new ArtifactReader(engine.artifacts, { owner, own: threadId, from: { runId, step: call.path } })
  }

  // ── what is written with the result ──────────────────────────────────────

  get isEmpty(): boolean {
    return this.#saved.length === 0 && this.#deleted.size === 0
  }

  /** Another save of the same content may be first. */
  get isContested(): boolean {
    return this.#saved.length > 0
  }

  get canWait(): boolean {
    return this.isEmpty
  }

  async prepare(): Promise<void> {}

  get records(): readonly RecordChange[] {
    const { codec, engine } = this.#host.run
    const contents = this.#saved.map(({ content }) => content)
    return [
      ...this.#saved.map(({ artifact }) => putArtifact(codec, artifact)),
      ...engine.artifacts.contents.references(contents),
      ...[...this.#deleted.keys()].map((key): RecordChange => ({ kind: 'delete', collection: 'artifact', key })),
    ]
  }

  get events(): readonly NewEvent[] {
    const { journal } = this.#host
    const attempt = this.#attempt
    return [
      ...this.#saved.map(({ artifact }) =>
        journal.event('artifact_saved', this.#call, { attempt, data: loggedArtifact(artifact) }),
      ),
      ...[...this.#deleted.values()].map(({ id, name, version }) =>
        journal.event('artifact_deleted', this.#call, { attempt, data: { id, name, version } }),
      ),
    ]
  }

  async recordsAfter(): Promise<readonly RecordChange[]> {
    const { owner, engine } = this.#host.run
    const contents = await engine.artifacts.contents.again(
      owner,
      this.#saved.map(({ content }) => content),
    )
    for (const [index, content] of contents.entries()) (this.#saved[index] as { content: HeldContent }).content = content
    return this.records
  }

  // ── what a body calls ────────────────────────────────────────────────────
  // Functions of their own, so that they can be destructured.

  readonly save = async (given: ArtifactToSave): Promise<Artifact> => {
    this.#refuseLate('save')
    const { owner, runId, threadId, engine } = this.#host.run
    const request = checkRequest(given, threadId)
    const { path: step, count } = this.#call
    const to = JSON.stringify([runId, step, count, ++this.#begun])
    const chunks = chunksOf(given.content, this.#body.signal)
    const asked = { name: request.name, threadId: request.threadId, to }
    const kept = await engine.artifacts.contents.keep(owner, placeOf(request.type), chunks, asked)
    this.#refuseLate('save')
    const createdBy = { runId, step, ...(request.by !== undefined && { by: request.by }) }
    const artifact = newArtifact(request, kept, { now: this.#host.clock.now(), createdBy })
    this.#saved.push({ artifact, content: kept.content })
    return { ...artifact }
  }

  readonly get = async (which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<Artifact | undefined> => {
    const reader = this.#reader.readerOf(options, 'get')
    const own = this.#ownOf(which)
    if (own === undefined) return this.#unlessDeleted(await this.#reader.get(which, reader))
    if (!mayRead(own, reader)) throw accessDenied(own, reader, 'read')
    return { ...own }
  }

  readonly open = (which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<ArtifactStream> =>
    this.#open(which, options, false)

  readonly download = (which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<ArtifactStream> =>
    this.#open(which, options, true)

  readonly list = async (filter: ArtifactFilter = {}): Promise<ArtifactPage> => {
    const page = await this.#reader.list(filter)
    const items = page.items.filter((artifact) => this.#unlessDeleted(artifact) !== undefined)
    if (page.cursor !== undefined || this.#saved.length === 0) return { ...page, items }
    const reader = this.#reader.readerOf(filter.principal === undefined ? undefined : { principal: filter.principal }, 'list')
    const { threadId = this.#host.run.threadId } = filter
    const own = this.#saved.flatMap(({ artifact }) => {
      const isMeant =
        (filter.name ?? artifact.name) === artifact.name &&
        (filter.type ?? artifact.type) === artifact.type &&
        (artifact.threadId ?? null) === threadId
      return isMeant && mayRead(artifact, reader) ? [{ ...artifact }] : []
    })
    return { items: [...items, ...own] }
  }

  readonly delete = async (which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<boolean> => {
    this.#refuseLate('delete')
    const own = this.#ownOf(which)
    if (own !== undefined) {
      this.#saved.splice(
        this.#saved.findIndex(({ artifact }) => artifact === own),
        1,
      )
      return true
    }
    const found = await this.#reader.toDelete(which, this.#reader.readerOf(options, 'delete'))
    this.#refuseLate('delete')
    if (found === undefined || this.#deleted.has(found.key)) return false
    this.#deleted.set(found.key, found.artifact)
    return true
  }

  async #open(
    which: string | NamedArtifact,
    options: ArtifactReadOptions | undefined,
    isDownload: boolean,
  ): Promise<ArtifactStream> {
    const reader = this.#reader.readerOf(options, isDownload ? 'download' : 'open')
    const own = this.#ownOf(which)
    // What is not committed can't be taken either.
    return own === undefined ? this.#reader.open(which, reader, isDownload) : this.#reader.stream(own, reader)
  }

  /** What this attempt has saved, the latest first. */
  #ownOf(which: string | NamedArtifact): Artifact | undefined {
    const isMeant = (artifact: Artifact) => {
      if (typeof which === 'string') return artifact.id === which
      const { name, version, threadId = this.#host.run.threadId } = which
      return (
        artifact.name === name && (artifact.threadId ?? null) === threadId && (version ?? artifact.version) === artifact.version
      )
    }
    return this.#saved.findLast(({ artifact }) => isMeant(artifact))?.artifact
  }

  #unlessDeleted(artifact: Artifact | undefined): Artifact | undefined {
    const isDeleted = [...this.#deleted.values()].some(
      ({ id, threadId }) => id === artifact?.id && threadId === artifact.threadId,
    )
    return isDeleted ? undefined : artifact
  }

  /** What a body writes after its end would be in no commit. */
  #refuseLate(method: string): void {
    if (this.#body.writes.isOver) throw reportLateWrite(this.#host.run, this.#call.path, `step.artifacts.${method}`)
  }
}
