/** Where Holdfast says what it does. `console` fits. Nothing is written unless a logger is given. */
export interface Logger {
  debug(message: string, data?: Readonly<Record<string, unknown>>): void
  info(message: string, data?: Readonly<Record<string, unknown>>): void
  warn(message: string, data?: Readonly<Record<string, unknown>>): void
  error(message: string, data?: Readonly<Record<string, unknown>>): void
}

export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} }
