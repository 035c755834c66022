import { writeSync } from 'node:fs'

/** One line for the test that started this program, written before anything else happens. */
export function report(name: string, value: unknown = null): void {
  writeSync(1, `${JSON.stringify({ name, value })}\n`)
}

/** For a body that is to be interrupted: it never comes to its end. */
export function forEver(): Promise<never> {
  return new Promise(() => {
    setInterval(() => {}, 1_000)
  })
}
