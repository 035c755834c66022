/** A pair of positions: an item of the first list, and the item of the second that continues it. */
export type Pair = readonly [before: number, after: number]

/**
 * Which items of two lists are the same, given a name for each: pairs that rise in both lists. Short lists get the longest such
 * sequence; in long ones the n-th item of a name before is taken for its n-th after, and of these pairs the longest rising sequence.
 */
export function alignLists(before: readonly string[], after: readonly string[]): Pair[] {
  const shorter = Math.min(before.length, after.length)
  let start = 0
  while (start < shorter && before[start] === after[start]) start += 1
  let same = 0
  while (same < shorter - start && before[before.length - 1 - same] === after[after.length - 1 - same]) same += 1
  const pairs: Pair[] = []
  for (let i = 0; i < start; i++) pairs.push([i, i])
  const [left, right] = [before.slice(start, before.length - same), after.slice(start, after.length - same)]
  const middle = left.length * right.length <= exactUpTo ? longestCommon(left, right) : longestRising(left, right)
  for (const [i, j] of middle) pairs.push([start + i, start + j])
  for (let i = same; i > 0; i--) pairs.push([before.length - i, after.length - i])
  return pairs
}

/** Cells of the table that finds the longest common sequence; beyond, it takes too long and too much memory. */
const exactUpTo = 250_000

function longestCommon(before: readonly string[], after: readonly string[]): Pair[] {
  const width = after.length + 1
  // lengths[i * width + j]: of the longest common sequence of before from i and after from j.
  const lengths = new Uint32Array((before.length + 1) * width)
  const at = (i: number, j: number) => lengths[i * width + j] as number
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      lengths[i * width + j] = before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  const pairs: Pair[] = []
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (before[i] === after[j]) pairs.push([i++, j++])
    else if (at(i + 1, j) >= at(i, j + 1)) i += 1
    else j += 1
  }
  return pairs
}

function longestRising(before: readonly string[], after: readonly string[]): Pair[] {
  const places = new Map<string, number[]>()
  for (const [j, name] of after.entries()) {
    const known = places.get(name)
    if (known === undefined) places.set(name, [j])
    else known.push(j)
  }
  for (const known of places.values()) known.reverse()
  const pairs = before.flatMap((name, i): Pair[] => {
    const j = places.get(name)?.pop()
    return j === undefined ? [] : [[i, j]]
  })
  // Of all rising sequences of a length, `ends` has the pair with the smallest end; `previous` links them.
  const ends: number[] = []
  const previous = new Int32Array(pairs.length).fill(-1)
  for (const [index, [, j]] of pairs.entries()) {
    let low = 0
    let high = ends.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((pairs[ends[middle] as number] as Pair)[1] < j) low = middle + 1
      else high = middle
    }
    if (low > 0) previous[index] = ends[low - 1] as number
    ends[low] = index
  }
  const rising: Pair[] = []
  for (let index = ends.at(-1) ?? -1; index >= 0; index = previous[index] as number) rising.push(pairs[index] as Pair)
  return rising.reverse()
}
