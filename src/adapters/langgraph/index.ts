export { HoldfastSaver } from './holdfast-saver.ts'
export { HoldfastStore, type HoldfastStoreOptions } from './holdfast-store.ts'
