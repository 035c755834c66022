import { type ArtifactParts, artifactParts } from '../src/artifacts/artifacts-parts.ts'
import { Committer } from '../src/engine/writing/committer.ts'
import { createCodec } from '../src/model/codec.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'

/** What collects the artifacts of a SQLite file with its folder beside it. */
export async function artifactPartsOf(file: string): Promise<{ parts: ArtifactParts; close: () => Promise<void> }> {
  const store = await openSqliteStore({ file, durability: 'full' })
  await store.migrate()
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const committer = new Committer(store, { log })
  const parts = artifactParts(
    { store, codec: createCodec(), log, commit: (change) => committer.commit(change) },
    { kind: 'folder', folder: `${file}.artifacts` },
  )
  const close = async () => {
    await committer.close()
    await store.close()
  }
  return { parts, close }
}
