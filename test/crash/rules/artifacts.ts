import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { StoreDump } from '../bed/store-dump.ts'

interface Saved {
  readonly id: string
  readonly type: string
  readonly name: string
  readonly version: number
  readonly sha256: string
  readonly size: number
}

/** An artifact is there if the log says so, at any moment; it has a version of its own, and its content inside the store is whole. */
export function violationsOfArtifacts({ threads, memory }: StoreDump): string[] {
  const events = threads.flatMap(({ log }) => log)
  const ids = (type: string) => events.filter((event) => event.type === type).map(({ data }) => data['id'] as string)
  const gone = new Set(ids('artifact_deleted'))
  const logged = ids('artifact_saved').filter((id) => !gone.has(id))
  const artifacts = memory.filter(({ collection }) => collection === 'artifact').map(({ value }) => value as Saved)
  const violations: string[] = []
  const kept = artifacts.map(({ id }) => id)
  if (!isDeepStrictEqual(kept.toSorted(), logged.toSorted()))
    violations.push(`artifacts ${JSON.stringify(kept)} are there, the log says ${JSON.stringify(logged)}`)
  if (new Set(artifacts.map(({ name, version }) => `${name} ${version}`)).size < artifacts.length)
    violations.push('two artifacts of one name have the same version')
  for (const { name, type, sha256, size } of artifacts) {
    const place = type === 'analysis_result' || type === 'message_content' ? 'store' : 'files'
    const content = memory.find(({ collection, key }) => collection === 'artifact_content' && key === `${place}:${sha256}`)
    const stem = `${sha256}-${(content?.value as { readonly generation: string } | undefined)?.generation}:`
    const chunks = memory.filter(({ collection, key }) => collection === 'artifact_chunk' && key.startsWith(stem))
    const bytes = Buffer.concat(chunks.map(({ value }) => value as Uint8Array))
    if (bytes.length !== size || createHash('sha256').update(bytes).digest('hex') !== sha256)
      violations.push(`artifact ${name} has ${bytes.length} of ${size} bytes, or others`)
  }
  return violations
}
