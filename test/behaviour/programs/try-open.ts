// Tries to open a store and says how that went. Arguments: URLs.
import { type HoldfastError, open } from 'holdfast'
import { report } from './report.ts'

for (const url of process.argv.slice(2)) {
  try {
    await (await open(url)).close()
    report('opened', url)
  } catch (error) {
    const { code, message } = error as HoldfastError
    report('refused', { code, message })
  }
}
