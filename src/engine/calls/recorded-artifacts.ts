import { ArtifactReader } from '../../artifacts/artifact-reader.ts'
import type { ArtifactReadOptions, ArtifactStream, Artifacts, NamedArtifact } from '../../define/artifacts.ts'
import type { StepHandle } from '../../define/context.ts'
import type { Artifact } from '../../model/artifact.ts'
import type { HeldRun } from '../execution/held-run.ts'
import type { RecordStep } from './recorded-memory.ts'

/** What was read needs no commit of its own. */
const reading = { checkpoint: false } as const

/**
 * `ctx.artifacts`: each call is recorded as a step that does only this. Of content that is opened, the log keeps which artifact it is of: a replay
 * reads it again, and it is the same, because the content of an artifact never changes.
 */
export function recordedArtifacts({ engine, owner, threadId }: HeldRun, record: RecordStep): Artifacts {
  const opening = (method: 'open' | 'download') => async (which: string | NamedArtifact, options?: ArtifactReadOptions) => {
    let opened: ArtifactStream | undefined
    const open = async (step: StepHandle<never>): Promise<Artifact> => {
      opened = await step.artifacts[method](which, options)
      return opened.artifact
    }
    const artifact = await record(`artifacts.${method}`, open, reading)
    const reader = new ArtifactReader(engine.artifacts, { owner, own: threadId })
    return opened ?? reader.again(artifact, method === 'download')
  }
  return {
    save: (artifact) => record('artifacts.save', (step) => step.artifacts.save(artifact)),
    get: (which, options) => record('artifacts.get', (step) => step.artifacts.get(which, options), reading),
    list: (filter) => record('artifacts.list', (step) => step.artifacts.list(filter), reading),
    delete: (which, options) => record('artifacts.delete', (step) => step.artifacts.delete(which, options)),
    open: opening('open'),
    download: opening('download'),
  }
}
