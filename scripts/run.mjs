// Runs a command of this repository: node scripts/run.mjs COMMAND [ARGUMENT…]
//
// The first command in a fresh clone may meet an old Node and no packages. So this file is plain JavaScript without
// dependencies. It installs the packages if they are missing or not those of package-lock.json, then runs the command
// with node_modules/.bin first on the PATH, where the dev dependency `node` is a current Node.

import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const bin = join(root, 'node_modules', '.bin')
const ownNode = join(root, 'node_modules', 'node', 'bin', 'node')
const quiet = ['--include=dev', '--engine-strict=false', '--no-audit', '--no-fund', '--loglevel=error']

// Holdfast itself runs from 22.13; running .ts files without a flag needs 22.18.
const oldest = [22, 18]

const [command, ...args] = process.argv.slice(2)
if (command === undefined) stop('Which command? For example: node scripts/run.mjs node scripts/test.mjs')
if (!packagesMatchLock()) installPackages()
if (!existsSync(ownNode) && !canUseThisNode()) installNode()
const folders = hasOwnNode() ? [bin] : [dirname(process.execPath), bin]
runCommand(command, args, { ...process.env, PATH: [...folders, process.env.PATH].join(delimiter) })

/** Whether what is installed is what package-lock.json asks for. By content: a checkout changes times, not packages. */
function packagesMatchLock() {
  const installed = readPackages(join(root, 'node_modules', '.package-lock.json'))
  const wanted = readPackages(join(root, 'package-lock.json'))
  if (installed === undefined || wanted === undefined) return false
  const same = (path) =>
    installed[path]?.version === wanted[path]?.version && installed[path]?.integrity === wanted[path]?.integrity
  // An optional package may be absent: it is for another platform.
  const arePresent = Object.keys(wanted).every((path) => path === '' || same(path) || (wanted[path].optional && !installed[path]))
  return arePresent && Object.keys(installed).every((path) => path in wanted)
}

function readPackages(file) {
  if (!existsSync(file)) return undefined
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages
  } catch {
    return undefined // Half written by an interrupted install: install again.
  }
}

/**
 * Without install scripts: npm before 11.16 would run node-gyp for better-sqlite3, which ships its binaries, and fail
 * on a machine without Python.
 */
function installPackages() {
  console.error('Installing packages (npm ci) …')
  npm(['ci', '--ignore-scripts', ...quiet])
}

/** The one install script that is needed fetches Node. */
function installNode() {
  console.error('Installing a current Node into node_modules (npm rebuild node) …')
  npm(['rebuild', 'node', ...quiet])
}

function npm(npmArgs) {
  // npm must not run on the Node that it is about to replace.
  const path = process.env.PATH.split(delimiter).filter((folder) => folder !== bin)
  const result = spawnSync('npm', npmArgs, {
    cwd: root,
    stdio: ['ignore', 2, 2],
    env: { ...process.env, PATH: path.join(delimiter) },
  })
  if (result.error) stop(`npm could not be started: ${result.error.message}. Install npm, then try again.`)
  if (result.status !== 0) stop(`npm ${npmArgs.slice(0, 2).join(' ')} failed; what it said is above.`)
}

/** Whether node_modules has a Node to use. Without one, the Node that runs this file must be new enough. */
function hasOwnNode() {
  const version = existsSync(ownNode) ? spawnSync(ownNode, ['--version'], { encoding: 'utf8' }).stdout : undefined
  if (isNewEnough(version)) return true
  if (canUseThisNode()) return false
  stop(
    `Node ${oldest.join('.')} or newer is needed; this is ${process.version}, and the one in node_modules ` +
      `${version ? `is ${version.trim()}` : 'is missing or does not start here'}. ` +
      'If npm is set to ignore install scripts, run `npm rebuild node --ignore-scripts=false`; otherwise install a newer Node.',
  )
}

/** Whether the Node that runs this file will do. `npm ci` removes it if it is the one in node_modules. */
function canUseThisNode() {
  return isNewEnough(process.version) && existsSync(process.execPath)
}

function isNewEnough(version) {
  const [major, minor] = (version ?? '').replace(/^v/, '').split('.').map(Number)
  return major > oldest[0] || (major === oldest[0] && minor >= oldest[1])
}

/** Runs the command in this process' place: same streams, same signals, same end. */
function runCommand(file, fileArgs, env) {
  const child = spawn(file, fileArgs, { cwd: root, stdio: 'inherit', env })
  // From a terminal, Ctrl-C reaches the child by itself; a second one would mean "at once" to it.
  const passOn = { SIGTERM: true, SIGHUP: true, SIGINT: !process.stdin.isTTY }
  for (const [signal, passes] of Object.entries(passOn)) process.on(signal, () => passes && child.kill(signal))
  child.on('error', (error) => stop(`${file} could not be started: ${error.message}`))
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code)
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
}

function stop(message) {
  console.error(message)
  process.exit(1)
}
