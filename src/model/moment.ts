/** The range of Date, in ms. */
export const maxTime = 8.64e15

/** Whether the value is a moment: ms since 1970, in the range of Date. */
export function isMoment(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= maxTime
}

/** What a moment must be, for the message that refuses `value`. */
export function momentAdvice(value: unknown): string {
  return value instanceof Date ? 'a number of ms since 1970, as date.getTime() gives it' : 'a number of ms since 1970'
}
