/** A clock that stands still until it is moved. */
export interface TestClock {
  /** For a store: its own time plus this is the time of the test clock, to the few ms between the two readings. */
  clockOffsetMs(): number
  advance(ms: number): void
  now(): number
}

export function createTestClock(startAt = 1_800_000_005_000): TestClock {
  let now = startAt
  return {
    clockOffsetMs: () => now - Date.now(),
    advance: (ms) => {
      now += ms
    },
    now: () => now,
  }
}
