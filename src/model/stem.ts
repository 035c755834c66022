/**
 * The stem of an English word, by Porter's algorithm (1980): "allergic" and "allergies" are the same word to a search. Words of other languages lose an
 * ending now and then, in texts and in questions alike.
 */
export function stem(word: string): string {
  if (word.length < 3 || !/^[a-z]+$/.test(word)) return word
  // A "y" that is a consonant is written as "Y" meanwhile.
  let stemmed = word.replace(/^y/, 'Y').replace(/([aeiou])y/g, '$1Y')
  stemmed = withoutPlural(stemmed)
  stemmed = withoutPast(stemmed)
  if (/[aeiouy].*y$/i.test(stemmed)) stemmed = stemmed.replace(/y$/i, 'i')
  for (const endings of [longEndings, middleEndings]) stemmed = replaceEnding(stemmed, endings)
  stemmed = withoutSuffix(stemmed)
  if (stemmed.endsWith('e')) {
    const rest = stemmed.slice(0, -1)
    if (measure(rest) > 1 || (measure(rest) === 1 && !endsShort(rest))) stemmed = rest
  }
  if (stemmed.endsWith('ll') && measure(stemmed) > 1) stemmed = stemmed.slice(0, -1)
  return stemmed.toLowerCase()
}

function withoutPlural(word: string): string {
  if (word.endsWith('sses') || word.endsWith('ies')) return word.slice(0, -2)
  return word.endsWith('s') && !word.endsWith('ss') ? word.slice(0, -1) : word
}

function withoutPast(word: string): string {
  if (word.endsWith('eed')) return measure(word.slice(0, -3)) > 0 ? word.slice(0, -1) : word
  const rest = word.endsWith('ed') ? word.slice(0, -2) : word.endsWith('ing') ? word.slice(0, -3) : undefined
  if (rest === undefined || !/[aeiouy]/.test(rest)) return word
  if (/(at|bl|iz)$/.test(rest)) return `${rest}e`
  if (/([^aeiouylsz])\1$/.test(rest)) return rest.slice(0, -1)
  return measure(rest) === 1 && endsShort(rest) ? `${rest}e` : rest
}

/** How often a consonant follows a vowel. */
function measure(word: string): number {
  return word.match(/[aeiouy]+[^aeiouy]+/g)?.length ?? 0
}

/** Consonant, vowel, consonant; the last one none of w, x and y. */
function endsShort(word: string): boolean {
  return /[^aeiouy][aeiouy][^aeiouywxY]$/.test(word)
}

type Endings = readonly (readonly [ending: string, replacement: string])[]

const longEndings: Endings = [
  ...([
    ['ational', 'ate'],
    ['tional', 'tion'],
    ['enci', 'ence'],
    ['anci', 'ance'],
    ['izer', 'ize'],
    ['abli', 'able'],
  ] as const),
  ...([
    ['alli', 'al'],
    ['entli', 'ent'],
    ['eli', 'e'],
    ['ousli', 'ous'],
    ['ization', 'ize'],
    ['ation', 'ate'],
  ] as const),
  ...([
    ['ator', 'ate'],
    ['alism', 'al'],
    ['iveness', 'ive'],
    ['fulness', 'ful'],
    ['ousness', 'ous'],
    ['aliti', 'al'],
  ] as const),
  ...([
    ['iviti', 'ive'],
    ['biliti', 'ble'],
  ] as const),
]

const middleEndings: Endings = [
  ...([
    ['icate', 'ic'],
    ['ative', ''],
    ['alize', 'al'],
    ['iciti', 'ic'],
    ['ical', 'ic'],
    ['ful', ''],
    ['ness', ''],
  ] as const),
]

/** The first that fits counts, whether there is enough before it or not. */
function replaceEnding(word: string, endings: Endings): string {
  const found = endings.find(([ending]) => word.endsWith(ending))
  if (found === undefined) return word
  const rest = word.slice(0, -found[0].length)
  return measure(rest) > 0 ? rest + found[1] : word
}

const suffixes = /(?:ement|ance|ence|able|ible|ment|ant|ent|ism|ate|iti|ous|ive|ize|(?<=[st])ion|al|er|ic|ou)$/

function withoutSuffix(word: string): string {
  const found = suffixes.exec(word)
  if (found === null) return word
  const rest = word.slice(0, found.index)
  return measure(rest) > 1 ? rest : word
}
