import { execFile } from 'node:child_process'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
// Registers the store suite, as the page about writing a store shows it.
import '../examples/own-store/my-store.suite.ts'
import { patience } from './patience.ts'
import { sharedPostgres } from './servers/postgres.ts'

const root = resolve(import.meta.dirname, '..')

describe.concurrent('examples', () => {
  test('the demo completes its report through a kill, three workers out of memory, a failed chart and a question', {
    timeout: patience(150_000),
  }, async () => {
    const output = await run('report/demo.ts')
    expect(output).toMatch(/✗ kill -9 \d+ +process 1 is dead/)
    expect(output.match(/✗ out of memory +process \d is dead/g)).toHaveLength(3)
    expect(output).toMatch(/↻ analyze +its fallback/)
    expect(output).toMatch(/– charts\/market +skipped/)
    expect(output).toMatch(/● a question +Send "Refunds and sales/)
    expect(output).toMatch(/✓ send .*█{20} +100 %/)
    // What process 1 finished is shown under its heading.
    const sectionOf = (number: number) => output.split(/ Process \d /)[number] ?? ''
    expect(sectionOf(1).match(/✓ gather\/\w+/g)?.length).toBeGreaterThanOrEqual(3)
    expect(sectionOf(1).trimEnd()).toMatch(/process 1 is dead$/)
    expect(sectionOf(2)).toMatch(/^ pid \d+, continues what process 1 left\n +[\d.]+ s {2}↻ recovered/)
    expect(output).toMatch(/The PDF is an artifact of the run, and was downloaded: .*report\.pdf/)
    expect(output).not.toContain('NOT TRUE')
    expect(output).not.toContain('\u001b')
    expect(longestLine(output)).toBeLessThanOrEqual(100)
    expect(output.trimEnd()).toMatch(/No result was lost or made twice\.$/)
  })

  test('a thread remembers Alice after kill -9, and another thread does not', async () => {
    const output = (await run('chat/main.ts')).replaceAll(/process \d+/g, 'process N')
    expect(output.trim().split('\n')).toEqual([
      'alice: My name is Alice.',
      'agent: Hello Alice.',
      '       (process N ended by SIGKILL)',
      'alice: What is my name?',
      'agent: You are Alice. This is message 3.',
      '       (process N ended by SIGKILL)',
      'bob: What is my name?',
      'agent: You have not told me.',
      '       (process N ended by SIGKILL)',
    ])
  })

  test('an agent remembers the conversation, the tone for a visit and allergies for good, killed after each turn', async () => {
    const output = await run('memory/main.ts')
    expect(output.trim().split('\n')).toEqual([
      'alice-1: My name is Alice, please be brief.',
      '  agent: Of course, Alice, I will keep that in mind.',
      'alice-1: I am allergic to nuts.',
      '  agent: Noted.',
      'alice-1: What is my name?',
      '  agent: You are Alice.',
      'A new conversation: the name and the tone were of the last one, the allergy is for good.',
      'alice-2: What allergies do I have?',
      '  agent: Allergic to nuts.',
      'alice-2: What is my name?',
      '  agent: You have not told me.',
      'alice-2: Book a table.',
      '  agent: Of course, I will keep that in mind.',
      'Known about alice: Allergic to nuts (allergy), learned by alice-1 in its step "reply"',
    ])
  })

  test('a mail is sent once, killed between sending and recording or met by another run', async () => {
    const output = await run('email/main.ts')
    expect(output.trim().split('\n')).toEqual([
      'The mail goes out, and the process is killed before it can note that:',
      'monday: killed (SIGKILL)',
      'Started again, the same run asks the provider first:',
      'monday: effect_intended',
      'monday: effect_completed (via check)',
      'Another run meets the same key:',
      'tuesday: effect_skipped',
      'Mails sent: 1',
    ])
  })

  test('four machines on one Postgres: one killed, one stopped, one cut off, and every mail goes out once', async () => {
    const output = await run('machines/main.ts', (await sharedPostgres()).url)
    expect(output).toContain('60 of 60 runs completed.')
    expect(output).toContain('360 steps have a result, each exactly one.')
    expect(output).toContain('0 mails went out twice.')
    for (const machine of [1, 2, 3]) expect(output).toMatch(new RegExp(`machine ${machine} +[1-9]`))
    expect(output).not.toContain('NOT TRUE')
    expect(longestLine(output)).toBeLessThanOrEqual(90)
  })

  test('a run waits for a store that is out of reach', async () => {
    await run('own-store/faulty-store.ts')
  })
})

async function run(example: string, ...more: string[]): Promise<string> {
  const args = ['--conditions=holdfast-source', join(root, 'examples', example), ...more]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: patience(140_000) }).catch(
    ({ message, stdout }: Error & { stdout: string }) => expect.fail(`${message}\n${stdout}`),
  )
  return stdout
}

function longestLine(text: string): number {
  return Math.max(...text.split('\n').map((line) => line.length))
}
