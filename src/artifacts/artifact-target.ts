import { fileURLToPath } from 'node:url'
import { HoldfastError } from '../model/errors.ts'

/** Where the content of files and exports goes: inside the store, or in a folder. */
export type ArtifactTarget = { readonly kind: 'store' } | { readonly kind: 'folder'; readonly folder: string }

/** `file:DIR` or `store:`; where none is given, a folder beside the SQLite file, else the store. */
export function artifactTarget(given: unknown, store: unknown): ArtifactTarget {
  if (given === undefined) {
    const file = typeof store === 'string' ? sqliteFile(store) : undefined
    return file === undefined ? { kind: 'store' } : { kind: 'folder', folder: `${file}.artifacts` }
  }
  if (given === 'store:') return { kind: 'store' }
  if (typeof given === 'string' && /^file:./.test(given) && !given.includes('\0')) {
    const folder = given.startsWith('file://') ? pathOf(given) : given.slice('file:'.length)
    if (folder !== undefined) return { kind: 'folder', folder }
  }
  throw new HoldfastError(
    'invalid_url',
    `artifacts of open is ${typeof given === 'string' ? JSON.stringify(given) : typeof given}; write file:DIR or store:.`,
  )
}

/** The file of `sqlite:FILE`; undefined for a database in memory, and for other stores. */
function sqliteFile(url: string): string | undefined {
  if (!url.startsWith('sqlite:')) return undefined
  const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
  return file === '' || file === ':memory:' ? undefined : file
}

function pathOf(url: string): string | undefined {
  try {
    return fileURLToPath(url)
  } catch {
    return undefined
  }
}
