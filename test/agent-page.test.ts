import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { patience } from './patience.ts'

// The page of examples/agent in a real browser. With HOLDFAST_SCREENSHOT=FILE the picture is kept, as the guide shows it.

const root = resolve(import.meta.dirname, '..')
const story = /^Of course\. Every word of this answer .* while I am still talking\.$/
let browser: Browser
let folder: string
let server: ChildProcess
let url: string
let page: Page

beforeAll(async () => {
  const executablePath = (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((entry) => join(entry, 'chromium'))
    .find(existsSync)
  browser = await chromium.launch({ executablePath: executablePath ?? 'chromium', args: ['--no-sandbox'] })
}, patience(60_000))
afterAll(() => browser?.close())

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-agent-page-'))
  const program = [
    '--conditions=holdfast-source',
    'examples/agent/server.ts',
    '--port',
    '0',
    '--url',
    `sqlite:${folder}/agent.db`,
  ]
  server = spawn(process.execPath, program, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] })
  url = await new Promise((resolve, reject) => {
    server.once('exit', (code) => reject(new Error(`the server ended with ${code}`)))
    server.stdout?.once('data', (line) => resolve(String(line).trim()))
  })
  page = await browser.newPage({ viewport: { width: 760, height: 720 } })
  page.setDefaultTimeout(patience(30_000))
  await page.goto(url)
}, patience(60_000))
afterEach(async () => {
  await page?.close()
  const ended = new Promise((resolve) => server.once('exit', resolve))
  server.kill('SIGTERM')
  await ended
  await rm(folder, { recursive: true, force: true })
}, patience(60_000))

const send = async (text: string) => {
  await page.fill('#text', text)
  await page.press('#text', 'Enter')
}
const answer = () => page.locator('article.assistant').last()
const says = (text: string | RegExp) =>
  expect.poll(async () => (await answer().innerText()).trim(), { timeout: patience(40_000) }).toMatch(text)

describe('the page of examples/agent', () => {
  test('shows an answer whole, without a word twice, though its process is killed while it speaks', {
    timeout: patience(120_000),
  }, async () => {
    await send('Tell me about yourself')
    await says(/Every word of this/)
    await page.click('#kill')
    await says(story)
    expect(await page.locator('#log').innerText()).toMatch(/Process \d+ was killed/)
    expect(await page.locator('article').count()).toBe(2)
    await page.reload()
    await says(story)
    expect(await page.locator('article').count()).toBe(2)
  })

  test('asks before it refunds, also after a reload, and goes on when it is approved', {
    timeout: patience(120_000),
  }, async () => {
    await send('I want a refund of order 4711')
    const approve = page.getByRole('button', { name: 'Approve' })
    await approve.waitFor()
    const picture = process.env['HOLDFAST_SCREENSHOT'] ?? join(folder, 'page.png')
    await page.screenshot({ path: picture })
    expect((await stat(picture)).size).toBeGreaterThan(5_000)
    await page.reload()
    await approve.waitFor()
    expect(await approve.count()).toBe(1)
    await approve.click()
    await says(/Your 120 euros for order 4711 are on their way\.$/)
    expect(await answer().innerText()).toContain('{"receipt":"r-4711-120"}')
    expect((await answer().innerText()).match(/Let me look at your order/g)).toHaveLength(1)
  })

  test('is stopped, and keeps what was said', { timeout: patience(120_000) }, async () => {
    await send('Tell me about yourself')
    await says(/Every word of this/)
    await page.click('#stop')
    await says(/\(stopped\)$/)
    const kept = await answer().innerText()
    expect(kept).toMatch(/^Of course\. Every word of this/)
    await page.reload()
    await says(/\(stopped\)$/)
    expect(await answer().innerText()).toBe(kept)
    await send('Denied: refund order 12')
    await page.getByRole('button', { name: 'Deny' }).click()
    await says(/I am sorry, this was not approved\.$/)
  })

  test('is of no use to a page elsewhere', async () => {
    const { port } = new URL(url)
    const foreign = await page.request.get(`http://127.0.0.1:${port}/api/chat/x`, { headers: { host: 'evil.example' } })
    expect(foreign.status()).toBe(403)
    expect((await page.request.post(`${url}/kill-worker`)).status()).toBe(404)
  })
})
