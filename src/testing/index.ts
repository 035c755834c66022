export { createMemoryStore, type MemoryStoreOptions } from '../stores/memory/memory-store.ts'
export { type CompareOptions, type Comparison, compareStores } from './compare-stores.ts'
export { type StoreAct, type StoreHooks, wrapStore } from './faulty-store.ts'
export { createTestClock, type TestClock } from './test-clock.ts'
