import { describe, expect, it } from 'vitest'
import { createStderrLogger } from './stderr-logger.ts'

function createListening() {
  const lines: string[] = []
  let nowMs = 0
  const logger = createStderrLogger(
    (line) => void lines.push(line),
    () => nowMs,
  )
  const advance = (ms: number): void => {
    nowMs += ms
  }
  return { lines, logger, advance }
}

describe('the logger of who gives none', () => {
  it('writes warnings and errors, a line each, and nothing else', () => {
    const { lines, logger } = createListening()
    logger.debug('d')
    logger.info('i')
    logger.warn('First.\n  Second.', { runId: 'r' })
    logger.error('claiming failed', { error: new Error('no route'), count: 2 })
    expect(lines).toEqual(['holdfast: First. Second.\n', 'holdfast: claiming failed (error: no route, count: 2)\n'])
  })

  it('writes no more than ten lines a second, and says how many it left out', () => {
    const { lines, logger, advance } = createListening()
    for (let i = 0; i < 25; i++) logger.warn(`line ${i}.`)
    expect(lines).toHaveLength(10)
    advance(1_000)
    logger.warn('later.')
    expect(lines.slice(10)).toEqual([expect.stringContaining('15 more lines were left out'), 'holdfast: later.\n'])
    for (let i = 0; i < 10; i++) logger.warn('again.')
    logger.flush()
    expect(lines.at(-1)).toContain('1 more line was left out')
    logger.flush()
    expect(lines).toHaveLength(22)
  })

  it('names the runs of the lines that it left out', () => {
    const { lines, logger } = createListening()
    for (let i = 0; i < 13; i++) logger.error('A run failed.', { runId: `r${Math.floor(i / 2)}` })
    logger.flush()
    expect(lines.at(-1)).toBe(
      'holdfast: 3 more lines were left out, about runs "r5", "r6"; open(url, { logger: console }) shows all.\n',
    )
    for (let i = 0; i < 30; i++) logger.error('A run failed.', { runId: `s${i}` })
    logger.flush()
    expect(lines.at(-1)).toContain('30 more lines were left out, about runs "s0", "s1", ')
    expect(lines.at(-1)).toContain(', "s19" and 10 more;')
  })

  it('shortens a line that is too long', () => {
    const { lines, logger } = createListening()
    logger.warn('x'.repeat(100_000))
    expect(lines[0]?.length).toBeLessThan(2_100)
  })
})
