import { HoldfastError } from './errors.ts'

/** Where Holdfast says what it does. `console` fits. */
export interface Logger {
  debug(message: string, data?: Readonly<Record<string, unknown>>): void
  info(message: string, data?: Readonly<Record<string, unknown>>): void
  warn(message: string, data?: Readonly<Record<string, unknown>>): void
  error(message: string, data?: Readonly<Record<string, unknown>>): void
}

const levels = ['debug', 'info', 'warn', 'error'] as const

/** The logger that the user gave, checked; one that throws does not keep a run from ending. */
export function readLogger(given: unknown): Logger {
  if (given === false) return silentLogger
  const logger = given as Logger
  const missing = levels.find((level) => typeof logger?.[level] !== 'function')
  if (missing !== undefined)
    throw new HoldfastError(
      'invalid_input',
      `logger has no function ${missing}(message, data); give one with debug, info, warn and error (console fits), or false for silence.`,
    )
  const guarded =
    (level: (typeof levels)[number]): Logger['warn'] =>
    (message, data) => {
      try {
        // An async function fits the type, too.
        const told: unknown = logger[level](message, data)
        if (told instanceof Promise) told.catch(() => {})
      } catch {
        // It was told; what it makes of it is its own.
      }
    }
  return { debug: guarded('debug'), info: guarded('info'), warn: guarded('warn'), error: guarded('error') }
}

export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} }
