import type { Head } from './heads.ts'
import { nameOfPlace, type Place } from './keys.ts'

/** What a loop of LangGraph was told when it began. */
export interface RunUnderWay {
  /** How many times its thread had been deleted. */
  readonly life: number
  /** By place: the head that it read because it named no checkpoint, moved along by what it wrote since. It must extend exactly this. */
  readonly heads: Map<string, Pick<Head, 'id' | 'version'>>
  /** The answer to an interrupt that it gives: what it writes later waits for this, and is refused with it. */
  answering?: Promise<void>
  /** Why a checkpoint of it was refused: nothing that it does counts any more. */
  refused?: unknown
}

interface Configured {
  readonly metadata?: Readonly<Record<string, unknown>> | undefined
  readonly configurable?: Record<string | symbol, unknown> | undefined
}

/** LangGraph copies what is configured into the configs of nodes, and stores only texts, numbers and flags of it. */
const runInConfig = Symbol('holdfast run')

/** The run that a node or tool belongs to, of the outermost graph. */
export function runOfNode({ configurable }: Configured): RunUnderWay | undefined {
  return configurable?.[runInConfig] as RunUnderWay | undefined
}

/**
 * Knows a loop of LangGraph again. All its calls carry one and the same metadata object, made for this loop and passed on as it is. Other
 * callers have none: what they write can't be told from a branch, and is one.
 */
export class RunsUnderWay {
  readonly #runs = new WeakMap<object, RunUnderWay>()

  of({ metadata }: Configured): RunUnderWay | undefined {
    return typeof metadata === 'object' && metadata !== null ? this.#runs.get(metadata) : undefined
  }

  /** A loop has read a head, or a checkpoint that it named. */
  began({ metadata, configurable }: Configured, head: Head, isNamed: boolean, life: number = head.life): void {
    if (typeof metadata !== 'object' || metadata === null) return
    const run = this.#runs.get(metadata) ?? { life, heads: new Map() }
    this.#runs.set(metadata, run)
    if (configurable !== undefined) configurable[runInConfig] ??= run
    if (isNamed) run.heads.delete(nameOfPlace(head))
    else run.heads.set(nameOfPlace(head), head)
  }
}

/** The head that a checkpoint with this parent must extend; undefined where it may branch. */
export function mustExtend(
  run: RunUnderWay | undefined,
  place: Place,
  parentId: string | undefined,
): Pick<Head, 'version'> | undefined {
  const head = run?.heads.get(nameOfPlace(place))
  return head !== undefined && head.id === parentId ? head : undefined
}
