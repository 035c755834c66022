export { type CompareOptions, type Comparison, compareStores } from './compare-stores.ts'
export { type StoreAct, type StoreHooks, wrapStore } from './faulty-store.ts'
export { type OpenedStore, type TestStoreOptions, testStore } from './store-suite/index.ts'
export { createTestClock, type TestClock } from './test-clock.ts'
