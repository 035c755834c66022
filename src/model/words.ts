import { stem } from './stem.ts'

/**
 * What a text is found by: its words, each once, in lower case, without accents, as stems; those that say nothing about a text left out. Of a long word
 * also how it begins, since stems of one family differ: "allergic", "allergies". Texts and questions are read alike, on every store. Scripts that write no
 * spaces are cut into pairs of characters.
 */
export function wordsOf(text: string, most = maxWords): string[] {
  const words = new Set<string>()
  const plain = text
    .slice(0, maxChars)
    .normalize('NFKD')
    .replaceAll(/\p{M}/gu, '')
    .replaceAll(/['’]s\b/g, '')
    .toLowerCase()
  for (const [word] of plain.matchAll(/[\p{L}\p{N}]+/gu)) {
    for (const part of unspaced.test(word) ? pairsOf(word) : [word]) {
      const found = stem(part.slice(0, maxWordChars).replace(halfCharacter, ''))
      if (silent.has(part) || silent.has(found)) continue
      words.add(found)
      const [begins] = found.match(beginning) ?? []
      if (begins !== undefined) words.add(`${begins}*`)
      if (words.size >= most) return [...words].slice(0, most)
    }
  }
  return [...words]
}

/** The text as it is compared with others, to recognize that it says the same. */
export function comparableText(text: string): string {
  return text
    .normalize('NFC')
    .toLowerCase()
    .replaceAll(/\s+/gu, ' ')
    .replaceAll(/^[\s"'“”‘’]+|[\s"'“”‘’.!;,]+$/gu, '')
}

/** Of a text, later words find nothing. */
const maxWords = 256
const maxChars = 100_000
const maxWordChars = 64

const unspaced =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u

function pairsOf(word: string): string[] {
  const characters = [...word]
  return characters.length < 3 ? [word] : characters.slice(1).map((character, index) => `${characters[index]}${character}`)
}

const beginning = /^\p{L}{5}(?=\p{L})/u
/** What a cut leaves of a character that takes two units. */
const halfCharacter = /[\ud800-\udbff]$/

const silent = new Set(
  (
    'a about after all also am an and any are as at be because been before being but by can could d did do does doing don for from get had has have ' +
    'he her hers him his how i if in into is it its just ll m may me might more most my no nor not of off on one or our ours out over own re s she ' +
    'should so some such t than that the their theirs them then there these they this those to too us ve very was we were what when where which while ' +
    'who whom whose why will with would you your yours'
  ).split(' '),
)
