import type { Logger } from './model/logger.ts'

const maxLinesASecond = 10
const maxLineLength = 2_000
/** How many runs are named in the line that says how many lines were left out. */
const maxRunsNamed = 20

/** The default logger: warnings and errors, one line each, at most 10 per second. */
export interface StderrLogger extends Logger {
  /** Writes how many lines were left out, and about which runs, if any were. */
  flush(): void
}

/** `write` gets whole lines; `now` is in ms. */
export function createStderrLogger(
  write: (line: string) => void = (line) => void process.stderr.write(line),
  now: () => number = () => performance.now(),
): StderrLogger {
  let since = Number.NEGATIVE_INFINITY
  let lines = 0
  let dropped = 0
  const droppedRuns = new Set<string>()
  let timer: NodeJS.Timeout | undefined

  const flush = (): void => {
    clearTimeout(timer)
    timer = undefined
    if (dropped === 0) return
    const lines = dropped === 1 ? '1 more line was' : `${dropped} more lines were`
    const runs = namesOf([...droppedRuns])
    dropped = 0
    droppedRuns.clear()
    write(`holdfast: ${lines} left out${runs}; open(url, { logger: console }) shows all.\n`)
  }
  const say = (message: string, data?: Readonly<Record<string, unknown>>): void => {
    if (now() - since >= 1_000) {
      flush()
      since = now()
      lines = 0
    }
    if (lines < maxLinesASecond) {
      lines++
      write(`holdfast: ${lineOf(message, data)}\n`)
    } else {
      dropped++
      if (typeof data?.['runId'] === 'string') droppedRuns.add(data['runId'])
      timer ??= setTimeout(flush, Math.max(0, since + 1_000 - now())).unref()
    }
  }
  return { debug() {}, info() {}, warn: say, error: say, flush }
}

function namesOf(runIds: readonly string[]): string {
  if (runIds.length === 0) return ''
  const named = runIds.slice(0, maxRunsNamed).map((id) => JSON.stringify(id))
  const more = runIds.length > named.length ? ` and ${runIds.length - named.length} more` : ''
  return `, about ${runIds.length === 1 ? 'run' : 'runs'} ${named.join(', ')}${more}`
}

/** A message that is a sentence is complete; to others the data is appended. */
function lineOf(message: string, data: Readonly<Record<string, unknown>> = {}): string {
  const isSentence = /[.!?]$/.test(message)
  const shown = isSentence ? [] : Object.entries(data).map(([key, value]) => `${key}: ${textOf(value)}`)
  const line = shown.length === 0 ? message : `${message} (${shown.join(', ')})`
  const flat = line.replace(/\s*[\r\n]+\s*/g, ' ')
  return flat.length > maxLineLength ? `${flat.slice(0, maxLineLength)}…` : flat
}

function textOf(value: unknown): string {
  if (value instanceof Error) return value.message
  return typeof value === 'object' && value !== null ? (JSON.stringify(value) ?? '') : String(value)
}
