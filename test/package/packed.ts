import { execFile } from 'node:child_process'
import { cp, mkdir, readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { patience } from '../patience.ts'

export const root = resolve(import.meta.dirname, '../..')

/** Builds and packs the package in a folder beside the repository, so that its own dist is left alone. Returns the tarball. */
export async function buildAndPack(target: string): Promise<string> {
  await mkdir(target)
  const { files } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  const papers = files.filter((name: string) => name !== 'dist' && !name.startsWith('!'))
  for (const name of ['package.json', ...papers]) await cp(join(root, name), join(target, name), { recursive: true })
  await run(process.execPath, ['scripts/build.mjs', join(target, 'dist')])
  const [packed] = JSON.parse(await run('npm', ['pack', '--json', '--ignore-scripts', '--loglevel=error'], target))
  return join(target, packed.filename)
}

/** README's first program that needs nothing but the package. */
export async function firstSnippet(): Promise<string> {
  const snippets = [...(await readFile(join(root, 'README.md'), 'utf8')).matchAll(/^```ts\n(.*?)^```/gms)].map(
    ([, code]) => code ?? '',
  )
  const program = snippets.find((code) => /from 'holdfast'/.test(code) && !/from 'ai'/.test(code))
  if (program === undefined) throw new Error('README.md has no ```ts block to try.')
  return program
}

/** What the command printed; if it fails, an error with all it said. */
export async function run(command: string, args: readonly string[], cwd = root): Promise<string> {
  return (await runQuietly(command, args, { cwd })).stdout
}

export interface Printed {
  readonly stdout: string
  readonly stderr: string
}

export async function runQuietly(
  command: string,
  args: readonly string[],
  { cwd = root, env = {} }: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Printed> {
  // Not as a part of this repository: no condition that finds its sources, no settings of the npm that started the tests.
  const inherited = Object.entries(process.env).filter(([name]) => !/^(npm_|NODE_OPTIONS$|NODE_ENV$|VITEST)/i.test(name))
  try {
    return await promisify(execFile)(command, args, {
      cwd,
      env: { ...Object.fromEntries(inherited), ...env },
      timeout: patience(100_000),
    })
  } catch (error) {
    const { stdout, stderr, signal } = error as { stdout?: string; stderr?: string; signal?: string }
    throw new Error([`${command} ${args.join(' ')} failed${signal ? ` (${signal})` : ''}`, stdout, stderr].join('\n'), {
      cause: error,
    })
  }
}
