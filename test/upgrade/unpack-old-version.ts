import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'

/** The old version as a file in this folder that finds the drivers. */
export function unpackOldVersion(folder: string): string {
  symlinkSync(join(import.meta.dirname, '../../node_modules'), join(folder, 'node_modules'))
  const file = join(folder, 'old-holdfast.mjs')
  writeFileSync(file, gunzipSync(readFileSync(new URL('./old-holdfast.mjs.gz', import.meta.url))))
  return file
}
