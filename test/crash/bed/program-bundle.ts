import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'vite'

const root = join(import.meta.dirname, '../../..')
const conditions = ['holdfast-source', 'node']
const bundled = new Map<string, Promise<string>>()

/**
 * A program under test as one file, because loading many takes longer than most of what it does. It is the same code, including
 * drivers. Bundled once for all tests, by the server in `servers/setup.ts`; outside of vitest, once per process.
 */
export function bundleProgram(source: string): Promise<string> {
  const desk = process.env['HOLDFAST_TEST_SERVERS']
  const made = bundled.get(source) ?? (desk === undefined ? bundle(source) : askFor(desk, source))
  bundled.set(source, made)
  return made
}

async function askFor(desk: string, source: string): Promise<string> {
  const answer = await fetch(`${desk}/bundle?source=${encodeURIComponent(source)}`)
  if (!answer.ok) throw new Error(`${source} could not be bundled: ${await answer.text()}`)
  return answer.text()
}

/** Removed with this process. */
export async function bundle(source: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-program-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  await build({
    root,
    configFile: false,
    logLevel: 'warn',
    ssr: { resolve: { conditions }, noExternal: true, external: ['better-sqlite3', 'pg-native'] },
    build: {
      ssr: source,
      outDir: join(folder, 'program'),
      emptyOutDir: false,
      target: 'node22',
      rolldownOptions: { output: { entryFileNames: 'program.mjs' } },
    },
  })
  return join(folder, 'program', 'program.mjs')
}
