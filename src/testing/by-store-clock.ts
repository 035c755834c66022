export const none = 0

/** For a worker whose store has the clock of a test: every wait is persisted, since those in memory go by real time, and found again soon. */
export const byStoreClock = { longWaitMs: none, pollMs: 5 } as const
