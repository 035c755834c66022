import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
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
  const env = { ...process.env, MS_PER_WORD: '40' }
  server = spawn(process.execPath, program, { cwd: root, env, stdio: ['ignore', 'pipe', 'ignore'] })
  url = await new Promise((resolve, reject) => {
    server.once('exit', (code) => reject(new Error(`the server ended with ${code}`)))
    server.stdout?.once('data', (line) => resolve(String(line).trim()))
  })
  page = await browser.newPage({ viewport: { width: 760, height: 640 } })
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

/** What a page is connected by, which can be cut. */
async function startWire(port: number) {
  let isCut = false
  const sockets = new Set<Socket>()
  const wire = createServer((socket) => {
    if (isCut) return void socket.destroy()
    const there = connect(port, '127.0.0.1')
    for (const end of [socket, there]) {
      sockets.add(end)
      end.on('error', () => {})
    }
    socket.pipe(there).pipe(socket)
  })
  await new Promise<void>((resolve) => wire.listen(0, '127.0.0.1', resolve))
  const cut = () => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  onTestFinished(() => {
    cut()
    wire.close()
  })
  const mend = () => {
    isCut = false
  }
  return { url: `http://127.0.0.1:${(wire.address() as AddressInfo).port}`, cut, mend }
}

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

  test('asks before it refunds, also after a kill and a reload, and goes on when it is approved', {
    timeout: patience(120_000),
  }, async () => {
    await send('I want a refund of order 4711')
    await says(/at your/)
    await page.click('#kill')
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
    expect(await answer().innerText()).toContain('receipt: r-4711-120')
    expect((await answer().innerText()).match(/Let me look at your order/g)).toHaveLength(1)
  })

  test('comes back after its connection broke, and shows the rest of an answer that was completed in the meantime', {
    timeout: patience(120_000),
  }, async () => {
    const wire = await startWire(Number(new URL(url).port))
    await page.goto(wire.url)
    await send('Tell me about yourself')
    await says(/Every word of this/)
    wire.cut()
    await expect.poll(() => page.locator('#log').innerText(), { timeout: patience(20_000) }).toMatch(/connection broke/)
    const chat = `${url}/api/chat/${new URL(page.url()).hash.slice(1)}`
    const isDone = async () => ((await (await fetch(chat)).json()) as { run?: unknown }).run === undefined
    await expect.poll(isDone, { timeout: patience(40_000) }).toBe(true)
    expect(await answer().innerText()).not.toMatch(story)
    wire.mend()
    await says(story)
    expect(await page.locator('article').count()).toBe(2)
  })

  test('shows two tabs the same: what one approves, the other can not approve again, and shows', {
    timeout: patience(120_000),
  }, async () => {
    await send('I want a refund of order 4711')
    await page.getByRole('button', { name: 'Approve' }).waitFor()
    const other = await browser.newPage()
    await other.goto(page.url())
    await other.getByRole('button', { name: 'Approve' }).waitFor()
    await page.getByRole('button', { name: 'Approve' }).click()
    await says(/Your 120 euros for order 4711 are on their way\.$/)
    await other.getByRole('button', { name: 'Approve' }).click()
    const last = other.locator('article.assistant').last()
    await expect
      .poll(async () => (await last.innerText()).trim(), { timeout: patience(40_000) })
      .toMatch(/Your 120 euros for order 4711 are on their way\.$/)
    expect(await other.locator('#log').innerText()).toMatch(/approval/)
    expect((await last.innerText()).match(/receipt/g)).toHaveLength(1)
    await other.close()
  })

  test('offers to try again where its worker was killed too often in one answer', { timeout: patience(120_000) }, async () => {
    await send('Tell me about yourself')
    const again = page.getByRole('button', { name: 'Try again' })
    const isOffered = async () => (await again.count()) > 0
    const said = async () => (await page.locator('article.assistant').last().allInnerTexts()).join('')
    const isSeen = (what: () => Promise<boolean>) =>
      expect.poll(async () => (await isOffered()) || (await what()), { timeout: patience(40_000) }).toBe(true)
    while (!(await isOffered())) {
      await isSeen(async () => /written to the store before the page shows it/.test(await said()))
      if (await isOffered()) break
      const { length } = await said()
      await page.click('#kill')
      // Another process begins the answer anew, or is not allowed to.
      await isSeen(async () => (await said()).length < length)
    }
    await again.click()
    await says(story)
    expect(await page.locator('article').count()).toBe(2)
  })

  test('keeps what is sent before it has loaded the chat', { timeout: patience(120_000) }, async () => {
    const isSent = Promise.withResolvers<void>()
    await page.route(/\/api\/chat\/[^/]+$/, async (route) => {
      await isSent.promise
      await route.continue()
    })
    await page.goto(url, { waitUntil: 'commit' })
    await send('My name is Alice')
    const loaded = page.waitForResponse((response) => /\/api\/chat\/[^/]+$/.test(response.url()))
    isSent.resolve()
    await loaded
    await says(/Nice to meet you, Alice/)
    expect(await page.locator('article').allInnerTexts()).toHaveLength(2)
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

  test('remembers in every chat who said who they are', { timeout: patience(120_000) }, async () => {
    await send('My name is Alice')
    await says(/Nice to meet you, Alice/)
    await page.click('#new')
    await page.getByRole('button', { name: 'Who am I?' }).click()
    await says(/^You are Alice\.$/)
  })

  test('says that its port is taken, and leaves no process behind', async () => {
    const program = [
      '--conditions=holdfast-source',
      'examples/agent/server.ts',
      '--port',
      new URL(url).port,
      '--url',
      `sqlite:${folder}/2.db`,
    ]
    const second = spawn(process.execPath, program, { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    second.stderr.on('data', (text) => {
      said += String(text)
    })
    // Its worker has the same stderr: the end of that is the end of both.
    await new Promise((resolve) => second.stderr.once('end', resolve))
    expect(said).toMatch(/^The port is taken\. Choose another: npm run example:agent -- --port 3001$/m)
  })

  test('is of no use to a page elsewhere', async () => {
    const { port } = new URL(url)
    const foreign = await page.request.get(`http://127.0.0.1:${port}/api/chat/x`, { headers: { host: 'evil.example' } })
    expect(foreign.status()).toBe(403)
    expect((await page.request.post(`${url}/kill-worker`)).status()).toBe(404)
  })
})
