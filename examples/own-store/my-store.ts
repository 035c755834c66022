// Stands for a store of your own: here it is the memory store under another name, so that the example runs.

export { createMemoryStore as createMyStore } from 'holdfast/testing'
