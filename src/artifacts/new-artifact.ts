import type { Artifact, ArtifactOrigin, CheckedRequest } from '../model/artifact.ts'

/** What is saved, once its content is kept. */
export function newArtifact(
  request: CheckedRequest,
  {
    id,
    content,
    version,
  }: { readonly id: string; readonly content: { readonly sha256: string; readonly size: number }; readonly version: number },
  { now, createdBy }: { readonly now: number; readonly createdBy: ArtifactOrigin },
): Artifact {
  const { name, type, contentType, threadId, ttlMs, afterDownloadMs } = request
  const { sha256, size } = content
  return {
    ...{ id, name, type, version, size, sha256, contentType },
    ...(threadId !== undefined && { threadId }),
    ...{ createdBy, createdAt: now },
    ...(afterDownloadMs !== undefined && { afterDownloadMs }),
    ...(ttlMs !== undefined && { expiresAt: now + ttlMs }),
  }
}

/** An artifact as the log has it: all that was decided when it was saved. */
export function loggedArtifact({ createdBy: _, ...artifact }: Artifact): Readonly<Record<string, unknown>> {
  return artifact
}
