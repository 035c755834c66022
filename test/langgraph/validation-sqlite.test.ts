import { validateSaverOn } from './validate-saver.ts'

validateSaverOn('sqlite')
