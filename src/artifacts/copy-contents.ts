import type { ArtifactPlace } from '../model/artifact.ts'
import { allContents, type KeptContent, ownersQuery, referenceQuery } from './artifact-records.ts'
import type { ArtifactParts } from './artifacts-parts.ts'

/**
 * Keeps the contents of all owners that artifacts refer to in another store's places, whichever these are: before the artifacts, so that none of
 * them is without. What is there already stays. Returns how many there are.
 */
export async function copyContents(source: ArtifactParts, target: ArtifactParts): Promise<number> {
  let count = 0
  for await (const { payload } of pages(source, ownersQuery)) {
    const { owner } = source.codec.decode(payload) as { readonly owner: string }
    for await (const record of pages(source, (afterKey) => allContents(owner, afterKey))) {
      if ((await source.store.readRecords(referenceQuery(owner, record.key))).length === 0) continue
      const [place = '', sha256 = ''] = record.key.split(':')
      const { size } = source.codec.decode(record.payload) as KeptContent
      const read = await source.contents.open(owner, place as ArtifactPlace, sha256, size)
      await target.contents.keep(owner, place as ArtifactPlace, read())
      count++
    }
  }
  return count
}

async function* pages({ store }: ArtifactParts, query: (afterKey: string | undefined) => ReturnType<typeof ownersQuery>) {
  for (let afterKey: string | undefined; ; ) {
    const asked = query(afterKey)
    const page = await store.readRecords(asked)
    yield* page
    afterKey = page.at(-1)?.key
    if (page.length < asked.limit) return
  }
}
