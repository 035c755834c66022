import { createHash, randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, readdir, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { codeOf, HoldfastError } from '../model/errors.ts'
import { type ArtifactBackend, type Blob, contentDamaged, type Received } from './backend.ts'

const partBytes = 256 * 1024
const blobName = /^([0-9a-f]{64})-([0-9a-f-]{36})$/

/**
 * Content as files: `OWNER/SH/SHA256-GENERATION`, where OWNER is a sum, too: no name that anybody gave is ever part of a path.
 *
 *   F1  What has its final name is complete and on the disk: it is written under another name, flushed, renamed, and the folder is flushed.
 *   F2  Nothing is read or written through a symbolic link below the folder.
 */
export class FolderBackend implements ArtifactBackend {
  readonly kind = 'folder'
  readonly #given: string
  #root: Promise<string> | undefined

  constructor(folder: string) {
    this.#given = resolve(folder)
  }

  async receive(chunks: AsyncIterable<Uint8Array>): Promise<Received> {
    const hash = createHash('sha256')
    let size = 0
    return this.#coded(async () => {
      const file = join(await this.#folder('incoming'), randomUUID())
      const handle = await open(file, 'wx', 0o600)
      const discard = () => rm(file, { force: true })
      try {
        for await (const chunk of chunks) {
          hash.update(chunk)
          size += chunk.byteLength
          await writeAll(handle, chunk)
        }
        await handle.sync()
        await handle.close()
      } catch (error) {
        await handle.close().catch(() => {})
        await discard().catch(() => {})
        throw error
      }
      return {
        ...{ sha256: hash.digest('hex'), size, discard },
        keep: (blob) =>
          this.#coded(async () => {
            const folder = await this.#folderOf(blob)
            await rename(file, join(folder, nameOf(blob)))
            await syncFolder(folder)
          }),
      }
    })
  }

  async has(blob: Blob, size: number): Promise<boolean> {
    return this.#coded(async () => {
      const folder = await this.#folderOf(blob)
      const found = await unlessMissing(lstat(join(folder, nameOf(blob))))
      if (found?.isFile() !== true || found.size !== size) return false
      // Whoever has renamed it may have died before the folder was flushed.
      await syncFolder(folder)
      return true
    })
  }

  async *read(blob: Blob, size: number): AsyncIterable<Uint8Array> {
    const handle = await this.#open(blob, size)
    try {
      for (let position = 0; position < size; ) {
        const part = new Uint8Array(Math.min(partBytes, size - position))
        const { bytesRead } = await this.#coded(() => handle.read(part, 0, part.length, position))
        if (bytesRead === 0) throw contentDamaged(blob, 'its file became shorter')
        position += bytesRead
        yield part.subarray(0, bytesRead)
      }
    } finally {
      await handle.close().catch(() => {})
    }
  }

  async remove(blob: Blob): Promise<void> {
    await this.#coded(async () => rm(join(await this.#folderOf(blob), nameOf(blob)), { force: true }))
  }

  async *list(owner: string): AsyncIterable<Blob> {
    const folder = await this.#coded(() => this.#folder(ownerName(owner)))
    for (const shard of await this.#coded(() => readdir(folder))) {
      const files = /^[0-9a-f]{2}$/.test(shard)
        ? await this.#coded(async () => readdir(await this.#folder(ownerName(owner), shard)))
        : []
      for (const file of files) {
        const [, sha256, generation] = blobName.exec(file) ?? []
        if (sha256 !== undefined && generation !== undefined) yield { owner, sha256, generation }
      }
    }
  }

  async removeReceived(beforeMs: number): Promise<number> {
    return this.#coded(async () => {
      const folder = await this.#folder('incoming')
      let count = 0
      for (const name of await readdir(folder)) {
        const found = await unlessMissing(lstat(join(folder, name)))
        if (found === undefined || found.mtimeMs > beforeMs) continue
        await rm(join(folder, name), { force: true })
        count++
      }
      return count
    })
  }

  async #open(blob: Blob, size: number): Promise<FileHandle> {
    try {
      const file = join(await this.#folderOf(blob), nameOf(blob))
      const handle = await open(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0))
      const found = await handle.stat()
      if (found.isFile() && found.size === size) return handle
      await handle.close()
      throw contentDamaged(blob, `its file has ${found.size} bytes instead of ${size}`)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') throw contentDamaged(blob, `its file is missing in ${this.#given}`, error)
      if (code === 'ELOOP') throw contentDamaged(blob, 'its file is a symbolic link', error)
      throw this.#codedError(error)
    }
  }

  #folderOf({ owner, sha256 }: Blob): Promise<string> {
    return this.#folder(ownerName(owner), sha256.slice(0, 2))
  }

  /** A folder below the root, made if it is not there. Refused if a symbolic link leads elsewhere (F2). */
  async #folder(...parts: readonly string[]): Promise<string> {
    this.#root ??= this.#makeRoot()
    this.#root.catch(() => {
      this.#root = undefined
    })
    let folder = await this.#root
    for (const part of parts) {
      const parent = folder
      folder = join(folder, part)
      await makeFolder(folder, parent)
      const found = await lstat(folder)
      if (found.isDirectory()) continue
      throw new HoldfastError(
        'corrupt_record',
        `${folder} is ${found.isSymbolicLink() ? 'a symbolic link' : 'no folder'}: artifacts are not kept there. Remove it, or restore the folder.`,
      )
    }
    return folder
  }

  async #makeRoot(): Promise<string> {
    const made = await mkdir(this.#given, { recursive: true, mode: 0o700 })
    if (made !== undefined) await syncFolder(dirname(made))
    const found = await stat(this.#given)
    if (!found.isDirectory()) throw new HoldfastError('invalid_url', `${this.#given} is no folder for artifacts.`)
    return realpath(this.#given)
  }

  async #coded<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act()
    } catch (error) {
      throw this.#codedError(error)
    }
  }

  #codedError(error: unknown): unknown {
    if (codeOf(error) !== undefined) return error
    const { code, syscall } = error as NodeJS.ErrnoException
    if (typeof code !== 'string' || typeof syscall !== 'string') return error
    const isFull = ['ENOSPC', 'EDQUOT', 'EFBIG'].includes(code)
    return new HoldfastError(
      isFull ? 'storage_full' : 'store_unavailable',
      `The folder of artifacts ${this.#given} ${isFull ? 'has no room' : `can't be used (${code})`}: nothing was saved or returned. ${isFull ? 'Make room' : 'See to the folder'}, and try again.`,
      { cause: error, retryable: true },
    )
  }
}

function nameOf({ sha256, generation }: Blob): string {
  return `${sha256}-${generation}`
}

function ownerName(owner: string): string {
  return createHash('sha256').update(owner).digest('hex')
}

async function writeAll(handle: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let written = 0; written < chunk.byteLength; ) written += (await handle.write(chunk, written)).bytesWritten
}

async function makeFolder(folder: string, parent: string): Promise<void> {
  try {
    await mkdir(folder, { mode: 0o700 })
    await syncFolder(parent)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

/** So that a name in it survives the machine. Windows can't, and keeps names by itself. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return
  const handle = await open(folder, constants.O_RDONLY | (constants.O_DIRECTORY ?? 0))
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

async function unlessMissing<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
