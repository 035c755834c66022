import { spawn } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { onEverySharedStore } from '../behaviour/stores.ts'

/** At how many moments the process is killed here. `HOLDFAST_KILLS=100` is at all of them. */
const kills = Number(process.env['HOLDFAST_KILLS'] ?? 4)

onEverySharedStore('a graph whose process is killed', (scene) => {
  it('loses no message, repeats no effect, and runs no node again whose writes were acknowledged, wherever it is killed', async () => {
    const { moments } = await run('untouched', 0)
    const first = Number(process.env['HOLDFAST_SEED'] ?? Date.now()) % Math.max(1, Math.floor(moments / kills))
    const step = Math.max(1, Math.floor(moments / kills))
    for (let at = 1 + first; at <= moments; at += step) await killedAt(at)
  })

  async function killedAt(at: number): Promise<void> {
    const journal = `killed at ${at}`
    await run(journal, at)
    const { list, messages } = await run(journal, 0)
    const lines = readFileSync(join(scene.folder, journal), 'utf8').trimEnd().split('\n')
    const nodes = ['a1', 'b1', 'c1', 'ask1 yes', 'd1', 'a2', 'b2', 'c2', 'ask2 yes', 'd2']
    expect([...list].sort(), `killed at ${at}`).toEqual([...nodes].sort())
    expect([...messages].sort(), `killed at ${at}`).toEqual(['h1', 'h2', ...nodes.map((name) => name.replace(' yes', ''))].sort())
    const effects = lines.filter((line) => line.startsWith('effect'))
    expect(effects.sort(), `killed at ${at}`).toEqual(nodes.map((name) => `effect of ${name.replace(' yes', '')}`).sort())
    for (const node of nodes) {
      const acknowledged = lines.indexOf(`acknowledged ${node}`)
      expect(acknowledged === -1 ? -1 : lines.indexOf(`ran ${node}`, acknowledged), `${node}, killed at ${at}: ${lines}`).toBe(-1)
    }
  }

  async function run(journal: string, killAt: number): Promise<{ list: string[]; messages: string[]; moments: number }> {
    const url = scene.url.startsWith('sqlite:') ? `sqlite:${join(scene.folder, `${journal}.db`)}` : ownPlace(scene.url, journal)
    const file = join(scene.folder, journal)
    if (killAt > 0 && existsSync(file)) rmSync(file)
    const program = join(import.meta.dirname, 'killed-program.ts')
    const child = spawn(process.execPath, [program, url, file, String(killAt)], { stdio: ['ignore', 'pipe', 'inherit'] })
    let output = ''
    for await (const chunk of child.stdout) output += String(chunk)
    if (child.exitCode === null && child.signalCode === null) await new Promise((resolve) => child.once('exit', resolve))
    if (killAt > 0) expect(child.signalCode).toBe('SIGKILL')
    else expect(child.exitCode).toBe(0)
    return killAt > 0 ? { list: [], messages: [], moments: 0 } : JSON.parse(output)
  }

  /** A schema or namespace of its own in the same server. */
  function ownPlace(url: string, journal: string): string {
    const name = journal.replaceAll(' ', '_')
    return url.startsWith('postgres') ? url.replace(/schema=\w+/, `schema=${name}`) : `${url}-${name}`
  }
})
