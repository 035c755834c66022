import { HoldfastError } from './model/errors.ts'

const oldest = { major: 22, minor: 13 }

/** Throws `unsupported_node` on a Node older than 22.13. To be called before a native module is loaded: on an old Node it may end the process. */
export function requireNode(version: string = process.versions.node): void {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number)
  if (major > oldest.major || (major === oldest.major && minor >= oldest.minor)) return
  const needed = `${oldest.major}.${oldest.minor}`
  throw new HoldfastError(
    'unsupported_node',
    `Holdfast needs Node ${needed} or newer; this process runs on Node ${version}. Install a current Node (an LTS release is best) and start again.`,
    { details: { version, needed } },
  )
}
