export { type Graph, type GraphOutput, type GraphQuestion, type GraphWorkflowOptions, graphWorkflow } from './graph-workflow.ts'
export { HoldfastSaver } from './holdfast-saver.ts'
export { HoldfastStore, type HoldfastStoreOptions } from './holdfast-store.ts'
