import { readFileSync, readlinkSync } from 'node:fs'

/**
 * Who holds a lease: the worker's name, and what tells whether its process still lives. A process is known by boot id, pid
 * namespace, pid and start time: equal in all four it is the same one, so that a pid used again is not mistaken for it.
 * Where these cannot be compared (another namespace, another boot, no /proc) nobody is called dead: the lease decides.
 */
export interface Holder {
  readonly worker: string
  readonly boot: string | null
  readonly pidNs: string | null
  readonly pid: number
  readonly start: string | null
}

export type ProcessIdentity = Omit<Holder, 'worker'>

export function thisProcess(): ProcessIdentity {
  return { boot: readBoot(), pidNs: readPidNamespace(), pid: process.pid, start: readProcess(process.pid)?.start ?? null }
}

export function describeHolder(worker: string, { boot, pidNs, pid, start }: ProcessIdentity): string {
  return JSON.stringify({ worker, boot, pidNs, pid, start })
}

/** Null for a text that is not of ours. */
export function parseHolder(text: string): Holder | null {
  try {
    const { worker, boot, pidNs, pid, start } = JSON.parse(text) as Holder
    return { worker: String(worker), boot: boot ?? null, pidNs: pidNs ?? null, pid: Number(pid), start: start ?? null }
  } catch {
    return null
  }
}

/** The text that was read last: runs that are read together mostly have one holder. */
let lastRead = { text: '', worker: '' }

/** The worker's name alone. */
export function workerOf(text: string): string
export function workerOf(text: string | null): string | null
export function workerOf(text: string | null): string | null {
  if (text === null) return null
  if (lastRead.text !== text) lastRead = { text, worker: parseHolder(text)?.worker ?? text }
  return lastRead.worker
}

/** Whether the holder's process is known to be gone, seen from this one. */
export function isDead(holder: Holder, here: ProcessIdentity): boolean {
  if (holder.boot === null || holder.boot !== here.boot) return false
  if (holder.pidNs === null || holder.pidNs !== here.pidNs) return false
  if (holder.start === null) return false
  const found = readProcess(holder.pid)
  // /proc can hide the processes of other users; a signal that finds nobody cannot be mistaken.
  if (found === null) return isNobody(holder.pid)
  return found.start !== holder.start || found.state === 'Z' || found.state === 'X'
}

/** State and start time: the 3rd and the 22nd field, counted after the name, which may contain anything. */
function readProcess(pid: number): { readonly state: string; readonly start: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state, start] = [fields[0], fields[19]]
    return state === undefined || start === undefined ? null : { state, start }
  } catch {
    return null
  }
}

function isNobody(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return false
  } catch (error) {
    return (error as { code?: unknown }).code === 'ESRCH'
  }
}

function readBoot(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
  } catch {
    return null
  }
}

function readPidNamespace(): string | null {
  try {
    return readlinkSync('/proc/self/ns/pid')
  } catch {
    return null
  }
}
