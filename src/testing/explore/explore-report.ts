import type { ThreadBundle } from '../../index.ts'
import { sentence } from '../../model/sentence.ts'
import type { Finding } from './judge-case.ts'

/** A case that went wrong. */
export interface ExploreFailure {
  /** Where the fault was, in the words of the log; `undisturbed` where there was none. */
  readonly point: string
  /** What was on record there: the run's calls, and the last that the log said of each. */
  readonly onRecord: string
  /** What was wrong, the most telling first. */
  readonly findings: readonly Finding[]
  /** Give it to `explore` as `only`, and this case alone is played. */
  readonly seed: string
  /** The thread as it was in the end, for `hf.debug.import`. Kept of the first failures. */
  readonly bundle?: ThreadBundle
  /** The file it was written to, where `bundles` names a folder. */
  readonly file?: string
}

/** What `explore` has found. */
export class ExploreReport {
  readonly workflow: string
  /** The cases that were played, the undisturbed one among them, by seed. */
  readonly cases: readonly { readonly seed: string; readonly point: string }[]
  readonly failures: readonly ExploreFailure[]
  /** How the undisturbed run ended: `completed`, `waiting (person)`. */
  readonly ending: string
  /** Why it failed or is paused. */
  readonly error?: string
  /** What is not compared, because two undisturbed runs differ in it: `$.output.sentAt`. */
  readonly ignored: readonly string[]
  readonly durationMs: number

  constructor(report: Pick<ExploreReport, 'workflow' | 'cases' | 'failures' | 'ending' | 'error' | 'ignored' | 'durationMs'>) {
    this.workflow = report.workflow
    this.cases = report.cases
    this.failures = report.failures
    this.ending = report.ending
    if (report.error !== undefined) this.error = report.error
    this.ignored = report.ignored
    this.durationMs = report.durationMs
  }

  /** A table: where, what was on record, what went wrong; with the seed of each case. */
  toString(): string {
    const { failures } = this
    const took = `${(this.durationMs / 1_000).toFixed(1)} s`
    const head = `explore ${this.workflow}: ${this.cases.length} cases, ${failures.length === 0 ? 'nothing' : failures.length} went wrong (${took})`
    const ending =
      this.ending === 'completed'
        ? []
        : [`Undisturbed the run is ${this.ending}${this.error === undefined ? '.' : `: ${sentence(this.error)}`}`]
    const ignored = this.ignored.length === 0 ? [] : [`Not compared, because it differs undisturbed: ${this.ignored.join(', ')}`]
    if (failures.length === 0) return [head, ...ending, ...ignored].join('\n')
    const rows = failures.map(({ point, onRecord, findings }) => [
      point,
      onRecord,
      findings.map(({ check, message }) => `${check}: ${message}`).join('; '),
    ])
    const table = [['point', 'on record', 'went wrong'], ['---', '---', '---'], ...rows]
    const lines = table.map((row) => `| ${row.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`)
    const seeds = failures.map(({ seed, file }) => `  ${JSON.stringify(seed)}${file === undefined ? '' : `  ${file}`}`)
    return [head, ...ending, ...ignored, '', ...lines, '', 'One of them again, explore({ …, only: seed }):', ...seeds].join('\n')
  }
}
