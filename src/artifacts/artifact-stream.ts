import { Readable } from 'node:stream'
import type { ArtifactStream } from '../define/artifacts.ts'
import type { Artifact } from '../model/artifact.ts'

/** The stream over verified content. `finished` is called once all of it was read, before the stream ends. */
export function streamOf(
  artifact: Artifact,
  read: () => AsyncIterable<Uint8Array>,
  finished: () => Promise<void> = async () => {},
): ArtifactStream {
  async function* content(): AsyncGenerator<Uint8Array> {
    yield* read()
    await finished()
  }
  return new ContentStream(artifact, content())
}

class ContentStream extends Readable implements ArtifactStream {
  readonly artifact: Artifact
  readonly #content: AsyncGenerator<Uint8Array>

  constructor(artifact: Artifact, content: AsyncGenerator<Uint8Array>) {
    super()
    this.artifact = artifact
    this.#content = content
  }

  override _read(): void {
    this.#content.next().then(
      ({ done, value }) => this.push(done === true ? null : value),
      (error: Error) => this.destroy(error),
    )
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#content.return(undefined).then(
      () => callback(error),
      () => callback(error),
    )
  }

  async bytes(): Promise<Uint8Array> {
    const parts: Uint8Array[] = []
    for await (const part of this) parts.push(part as Uint8Array)
    return new Uint8Array(Buffer.concat(parts))
  }

  async text(): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.bytes())
  }
}
