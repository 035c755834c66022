import { createHash } from 'node:crypto'

/**
 * Vectors without a model: character n-grams of the words, hashed to signed places. The same text gives the same vector everywhere. It knows how words are
 * spelled and nothing of what they mean: it proves the machinery, not how good a model is.
 */
export async function embedLocally(texts: string[]): Promise<number[][]> {
  return texts.map(embedText)
}

const dimensions = 384

function embedText(text: string): number[] {
  const vector = new Array<number>(dimensions).fill(0)
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []) {
    if (word.length < 3) continue
    const padded = `<${word}>`
    for (const size of [3, 4, 5]) {
      for (let start = 0; start + size <= padded.length; start++) {
        const hash = placeOf(padded.slice(start, start + size))
        const place = hash % dimensions
        vector[place] = (vector[place] as number) + ((hash >>> 16) & 1 ? 1 : -1)
      }
    }
  }
  return vector
}

const places = new Map<string, number>()

function placeOf(gram: string): number {
  let place = places.get(gram)
  if (place === undefined) {
    place = createHash('md5').update(gram).digest().readUInt32LE(0)
    places.set(gram, place)
  }
  return place
}
