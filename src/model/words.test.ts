import { expect, test } from 'vitest'
import { stem } from './stem.ts'
import { comparableText, wordsOf } from './words.ts'

test.each([
  ['caresses', 'caress'],
  ['ponies', 'poni'],
  ['cats', 'cat'],
  ['agreed', 'agre'],
  ['plastered', 'plaster'],
  ['bled', 'bled'],
  ['motoring', 'motor'],
  ['sing', 'sing'],
  ['conflated', 'conflat'],
  ['hopping', 'hop'],
  ['falling', 'fall'],
  ['filing', 'file'],
  ['happy', 'happi'],
  ['sky', 'sky'],
  ['relational', 'relat'],
  ['vietnamization', 'vietnam'],
  ['hopefulness', 'hope'],
  ['triplicate', 'triplic'],
  ['electrical', 'electr'],
  ['adjustment', 'adjust'],
  ['adoption', 'adopt'],
  ['probate', 'probat'],
  ['rate', 'rate'],
  ['controll', 'control'],
  ['playing', 'plai'],
  ['yes', 'ye'],
  ['is', 'is'],
])('the stem of %s is %s, as Porter gives it', (word, expected) => {
  expect(stem(word)).toBe(expected)
})

test('a text is found by its words: without case, accents, endings, and words that say nothing', () => {
  expect(wordsOf("Alice's ALLERGIES: nuts, crème brûlée & the nuts")).toEqual([
    'alic',
    'allergi',
    'aller*',
    'nut',
    'creme',
    'brule',
  ])
  expect(wordsOf('What is she?')).toEqual([])
  expect(wordsOf('order #4711-B at 50%')).toEqual(['order', '4711', 'b', '50'])
  expect(wordsOf('Straße нуть 東京都')).toEqual(['straße', 'straß*', 'нуть', '東京', '京都'])
  expect(wordsOf('"nuts" OR milk* NEAR(tea) -- $1')).toEqual(['nut', 'milk', 'near', 'tea', '1'])
  // Letters that take two units of UTF-16 are not cut in half: what is left would be no text to a database.
  for (const text of [`a${'𐐨'.repeat(60)}`, 'ab𐐨𐐨𐐨𐐨', '𐐨'.repeat(7)])
    for (const word of wordsOf(text)) expect(word.isWellFormed(), word).toBe(true)
  expect(wordsOf('a b c d e f g', 3)).toEqual(['b', 'c', 'e'])
})

test('texts that say the same are recognized by case, spaces, quotes and the last mark', () => {
  expect(comparableText('  Alice likes\n TEA. ')).toBe('alice likes tea')
  expect(comparableText('“Alice likes tea”!')).toBe('alice likes tea')
  expect(comparableText('It is 2⁴')).not.toBe(comparableText('It is 24'))
  expect(comparableText('Is it 5?')).toBe('is it 5?')
})
