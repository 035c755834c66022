/** A message with one mark at its end, so that another sentence can follow. */
export function sentence(message: string): string {
  return /[.?!]$/.test(message) ? message : `${message}.`
}
