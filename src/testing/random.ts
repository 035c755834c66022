/** Chance that comes from a seed: the same seed gives the same choices. */
export interface Random {
  /** From 0 up to, not including, 1. */
  fraction(): number
  /** From `min` to `max`, both included. */
  integer(min: number, max: number): number
  chance(probability: number): boolean
  pick<Item>(items: readonly Item[]): Item
  /** By weight; a weight of 0 is never picked. */
  pickWeighted<Item>(items: readonly (readonly [weight: number, item: Item])[]): Item
}

/** Mulberry32: small, fast, and good enough to choose what to do next. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0
  const fraction = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  const integer = (min: number, max: number) => min + Math.floor(fraction() * (max - min + 1))
  return {
    fraction,
    integer,
    chance: (probability) => fraction() < probability,
    pick: (items) => items[integer(0, items.length - 1)] as (typeof items)[number],
    pickWeighted: (items) => {
      let left = fraction() * items.reduce((sum, [weight]) => sum + weight, 0)
      for (const [weight, item] of items) {
        left -= weight
        if (left < 0) return item
      }
      return (items.at(-1) as (typeof items)[number])[1]
    },
  }
}

/** The fields, or none. */
export function maybe<Fields extends object>(isWanted: boolean, fields: Fields): Fields | Record<never, never> {
  return isWanted ? fields : {}
}
