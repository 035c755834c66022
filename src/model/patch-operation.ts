/** A key of an object, an index of an array, or a key of a Map. */
export type PathKey = string | number | bigint | boolean | null | undefined
export type Path = readonly PathKey[]

/** Part of an array rebuilt from its old elements: `start, count` pairs of numbers to copy, lists of new items. */
export type Segments = readonly (number | readonly unknown[])[]

export type PatchOperation =
  /** Set: the whole state (empty path), a property, an element that exists, a Map entry. */
  | readonly ['=', Path, unknown]
  /** Delete a property or a Map entry. */
  | readonly ['-', Path]
  /** Splice an array: start, how many to delete, items to insert. */
  | readonly ['s', Path, number, number, readonly unknown[]]
  /** Rebuild an array from its old elements and new ones. */
  | readonly ['a', Path, Segments]
  /** Splice a string: start, how many UTF-16 units to delete, text to insert. */
  | readonly ['t', Path, number, number, string]
  /** Delete members of a Set, then add others. */
  | readonly ['d', Path, readonly PathKey[], readonly PathKey[]]
  /** Move keys of an object or Map, or members of a Set, to the end, in this order. */
  | readonly ['m', Path, readonly PathKey[]]

export type Patch = readonly PatchOperation[]

// biome-ignore lint/suspicious/noExplicitAny: the type of a state is known to its definition only
export type Recipe = (draft: any) => unknown
