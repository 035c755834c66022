export { HoldfastSaver } from './holdfast-saver.ts'
