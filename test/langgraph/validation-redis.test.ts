import { validateSaverOn } from './validate-saver.ts'

validateSaverOn('redis')
