import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { explore, mockSteps } from 'holdfast/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { chat } from '../../examples/chat/conversation.ts'
import { type Provider as MailProvider, remindWith } from '../../examples/email/remind.ts'
import { newsletter } from '../../examples/machines/newsletter.ts'
import { type Provider, startProvider } from '../../examples/machines/surroundings.ts'
import { agent } from '../../examples/memory/agent.ts'
import { sources } from '../../examples/report/gather.ts'
import { Mailer } from '../../examples/report/mailer.ts'
import { report } from '../../examples/report/report.ts'
import { patience } from '../patience.ts'

describe('explore finds nothing wrong in', () => {
  test('examples/chat', async () => {
    const explored = await explore({
      workflow: chat,
      input: 'My name is Alice.',
      invariant: ({ output, state }) => {
        assert.equal(output, 'Hello Alice.')
        assert.deepEqual([state.name, state.messages.length], ['Alice', 2])
      },
    })
    expect(String(explored)).toContain('nothing went wrong')
  })

  test('examples/agent', { timeout: patience(120_000) }, async () => {
    vi.stubEnv('MS_PER_WORD', '0')
    const { support } = await import('../../examples/agent/support.ts')
    const explored = await explore({
      workflow: support,
      input: { message: { id: 'm1', role: 'user', parts: [{ type: 'text', text: 'I want a refund of order 4711' }] } },
      answers: { approve: { approved: true } },
      invariant: ({ state }) => {
        const [, answer] = state.messages
        const texts = answer.parts.flatMap(({ text }: { text?: string }) => text ?? [])
        assert.deepEqual(texts, [
          'Let me look at your order. ',
          'It can be refunded. I will ask a colleague. ',
          'Your 120 euros for order 4711 are on their way.',
        ])
        const outputs = answer.parts.flatMap(({ output }: { output?: object }) => output ?? [])
        assert.deepEqual(outputs.at(-1), { receipt: 'r-4711-120' })
      },
    })
    expect(String(explored)).toContain('nothing went wrong')
  })

  test('examples/memory', async () => {
    const explored = await explore({
      workflow: agent,
      input: { customer: 'alice', text: 'My name is Alice, be brief. I am allergic to nuts.' },
      invariant: ({ output, state }) => {
        assert.equal(output, 'Of course, Alice, I will keep that in mind.')
        assert.deepEqual([state.name, state.messages.length], ['Alice', 2])
      },
    })
    expect(String(explored)).toContain('nothing went wrong')
  })

  test('examples/email', async () => {
    const world = () => {
      const sent: string[] = []
      const provider: MailProvider = {
        send: (key) => {
          sent.push(key)
          return key
        },
        sentKeys: () => sent,
      }
      return provider
    }
    const input = { customer: 'Alice', month: '2026-11' }
    const sentOnce = ({ world }: { world: MailProvider }) => assert.deepEqual(world.sentKeys(), ['reminder:Alice:2026-11'])
    const explored = await explore({ world, workflow: remindWith, input, invariant: sentOnce, crashes: 2 })
    expect(String(explored)).toContain('nothing went wrong')
  })

  test('examples/machines', async () => {
    const providers: Provider[] = []
    onTestFinished(() => {
      for (const provider of providers) provider.stop()
    })
    const world = async () => {
      const provider = await startProvider()
      providers.push(provider)
      return provider
    }
    const explored = await explore({
      world,
      // Its paragraphs take their time.
      workflow: () => mockSteps(newsletter, Object.fromEntries([1, 2, 3, 4, 5, 6].map((n) => [`write_${n}`, `Paragraph ${n}.`]))),
      input: (provider: Provider) => ({ reader: 'alice', provider: provider.url }),
      invariant: ({ world }) => assert.deepEqual(world.mails, ['newsletter:alice']),
    })
    expect(String(explored)).toContain('nothing went wrong')
  })

  test('examples/report', async () => {
    const root = await mkdtemp(join(tmpdir(), 'holdfast-explore-report-'))
    onTestFinished(() => rm(root, { recursive: true, force: true }))
    let folders = 0
    const rows = (source: string) => [{ source, day: '2026-11-01', region: 'north', value: 1 }]
    const trends = sources.map((source) => ({ source, rows: 1, byRegion: [{ region: 'north', sum: 1 }] }))
    const explored = await explore({
      world: () => join(root, String(++folders)),
      workflow: () => mockSteps(report, { 'gather/source': rows, 'analyze/trends': trends, compile: { file: 'report.pdf' } }),
      input: (folder: string) => ({ title: 'Refunds', folder, journal: join(folder, 'journal') }),
      answers: { send_it: true },
      faults: ['crash', 'lostAnswer'],
      invariant: async ({ world, output }) => {
        assert.deepEqual(await new Mailer(join(world, 'outbox')).sent(), ['report:explored'])
        assert.equal(output.charts.length, 4)
      },
    })
    expect(String(explored)).toContain('nothing went wrong')
    expect(explored.cases.length).toBeGreaterThan(50)
  })
})
