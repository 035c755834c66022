import type { Codec } from '../model/codec.ts'
import type { Logger } from '../model/logger.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'
import type { ReaderParts } from './artifact-reader.ts'
import type { ArtifactTarget } from './artifact-target.ts'
import type { ArtifactBackend } from './backend.ts'
import { Contents } from './contents.ts'
import { FolderBackend } from './folder-backend.ts'
import { StoreBackend } from './store-backend.ts'

/** What saving and reading artifacts needs, for all owners. */
export type ArtifactParts = ReaderParts

export function artifactParts(
  parts: {
    readonly store: Store
    readonly codec: Codec
    readonly log: Logger
    readonly commit: (change: Change) => Promise<Committed>
  },
  target: ArtifactTarget,
): ArtifactParts {
  const store = new StoreBackend(parts)
  const files: ArtifactBackend = target.kind === 'folder' ? new FolderBackend(target.folder) : store
  return { ...parts, contents: new Contents({ ...parts, backends: { files, store } }) }
}
