import type { Readable } from 'node:stream'
import type { Artifact, ArtifactRetention, ArtifactType, Principal } from '../model/artifact.ts'

/** Named content that outlives a run: files, exports, results, parts of a conversation. Its owner is that of the run or the client. */
export interface Artifacts {
  /**
   * Saves content under a name, as its next version. In a run the name is one of its thread, and the artifact is committed with the result of the step;
   * from outside it is there when this resolves.
   */
  save(artifact: ArtifactToSave): Promise<Artifact>
  /** What is known about an artifact, by its id, or by its name: then the latest version unless you say which. Undefined where there is none. */
  get(which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<Artifact | undefined>
  /** Its content, as a stream that was verified before the first byte. `corrupt_record` where it is damaged. */
  open(which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<ArtifactStream>
  /** The same; when the stream was read to its end, the artifact has been downloaded: a `generated_file` is then kept for a day. */
  download(which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<ArtifactStream>
  /** Artifacts that the principal may read, in the order in which they were saved, page by page. */
  list(filter?: ArtifactFilter): Promise<ArtifactPage>
  /** False where there is none. Content that nothing refers to is removed later. */
  delete(which: string | NamedArtifact, options?: ArtifactReadOptions): Promise<boolean>
}

export interface ArtifactToSave {
  /** What it is called: saving another one of this name makes a new version. Parts may be separated with `/`. */
  readonly name: string
  readonly type: ArtifactType
  /** Text, bytes, or a stream of either. A function that returns a stream can be called again in another attempt; a stream can't. */
  readonly content: ArtifactContent
  /** Default `text/plain; charset=utf-8` for text, else `application/octet-stream`. */
  readonly contentType?: string
  /** How long it is kept. Default: as the type says. */
  readonly retention?: ArtifactRetention
  /** The thread that it belongs to, and is deleted with. Null: its owner alone. Default: in a run its thread, from outside null. */
  readonly threadId?: string | null
  /** Who saves it, if no run does. */
  readonly by?: string
}

export type ArtifactContent =
  | string
  | Uint8Array
  | ArrayBuffer
  | ArtifactChunks
  | (() => ArtifactChunks | Promise<ArtifactChunks>)

/** A stream of Node or of the web, or any other async iterable. */
export type ArtifactChunks = AsyncIterable<string | Uint8Array>

export interface NamedArtifact {
  readonly name: string
  /** Default: the latest. */
  readonly version?: number
  /** The thread whose name it is. Default as in `save`. */
  readonly threadId?: string | null
}

export interface ArtifactReadOptions {
  /** Who reads. Default: in a run the context of its thread, from outside the owner. */
  readonly principal?: Principal
}

export interface ArtifactFilter extends ArtifactReadOptions {
  readonly name?: string
  readonly type?: ArtifactType
  /** Only those of this thread; null: only those of no thread. Default: in a run its thread, from outside all. */
  readonly threadId?: string | null
  /** Also those that were saved after the point to which their thread was taken back. Default false. */
  readonly includeTakenBack?: boolean
  /** 1 to 1,000. Default 100. */
  readonly limit?: number
  /** The cursor of the page before. */
  readonly cursor?: string | undefined
}

export interface ArtifactPage {
  readonly items: readonly Artifact[]
  readonly cursor?: string
}

/** The content of an artifact. */
export interface ArtifactStream extends Readable {
  readonly artifact: Artifact
  /** All of it, in memory. */
  bytes(): Promise<Uint8Array>
  /** All of it as UTF-8. */
  text(): Promise<string>
}
