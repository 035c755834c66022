import { existsSync, statfsSync } from 'node:fs'
import { cpus, loadavg, totalmem } from 'node:os'
import { DatabaseSync } from 'node:sqlite'

/** Says where the figures come from: without it they mean nothing elsewhere. */
export function printMachine(sqliteFolder?: string): void {
  const [cpu] = cpus()
  console.log(
    `machine   ${cpus().length} cores (${cpu?.model.trim() ?? 'unknown'}), ${gigabytes(totalmem())} GB, ${process.platform} ${process.arch}, Node ${process.version}`,
  )
  if (sqliteFolder !== undefined) console.log(`store     ${describeSqlite(sqliteFolder)}`)
  printLoad('start')
}

function describeSqlite(folder: string): string {
  const db = new DatabaseSync(':memory:')
  const { version } = db.prepare('SELECT sqlite_version() AS version').get() as { version: string }
  db.close()
  return `SQLite ${version} through node:sqlite, ${folder} (${fileSystem(folder)})`
}

/** The load of the machine by its own count: above the number of cores, timings are worth little. */
export function printLoad(when: 'start' | 'end'): void {
  const [last] = loadavg()
  const isBusy = (last ?? 0) > cpus().length
  console.log(
    `load      ${(last ?? 0).toFixed(2)} over the last minute at the ${when}${isBusy ? ': the machine is BUSY, read ratios only' : ''}`,
  )
}

function gigabytes(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(0)
}

/** Linux's number of a file system type, as a name where it matters for fsync. */
function fileSystem(folder: string): string {
  if (!existsSync(folder)) return 'missing'
  const names: Record<string, string> = {
    '61267': 'ext4',
    '1481003842': 'xfs',
    '2435016766': 'btrfs',
    '16914836': 'tmpfs: fsync is free there',
  }
  const { type } = statfsSync(folder)
  return names[String(type)] ?? `type 0x${type.toString(16)}`
}
