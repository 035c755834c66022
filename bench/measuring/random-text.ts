import { randomFillSync } from 'node:crypto'

const letters = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index)).filter(
  (letter) => letter !== '"' && letter !== '\\',
)

/** Text of as many bytes, each a random printable character that JSON writes as it is: no text compresses less (to 82 %). */
export function randomText(bytes: number): string {
  const numbers = randomFillSync(new Uint16Array(bytes))
  let text = ''
  for (const number of numbers) text += letters[number % letters.length]
  return text
}
