import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'

// What coding agents read. That its snippets are taken from files that run is in docs.test.ts.
const root = resolve(import.meta.dirname, '..')
const read = (file: string) => readFileSync(join(root, file), 'utf8')
const skills = readdirSync(join(root, 'skills'))
const pages = skills.flatMap((skill) =>
  (readdirSync(join(root, 'skills', skill), { recursive: true }) as string[])
    .filter((file) => file.endsWith('.md'))
    .map((file) => `skills/${skill}/${file}`),
)

describe.each(skills)('the skill %s', (skill) => {
  const text = read(`skills/${skill}/SKILL.md`)

  test('has a name, and says what it does and when to use it', () => {
    const [, frontmatter = ''] = /^---\n(.*?)\n---\n/s.exec(text) ?? []
    const fields = frontmatter.split('\n').map((line) => /^([a-z]+): (.+)$/.exec(line)?.slice(1))
    expect(fields).toEqual([
      ['name', skill],
      ['description', expect.stringMatching(/ Use when /)],
    ])
    expect(skill).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/)
    // A colon after a word would begin another field.
    expect(fields[1]?.[1]).not.toMatch(/: |["#]/)
    expect(String(fields[1]?.[1]).length).toBeLessThanOrEqual(1_024)
  })

  test('is short, and its references are one level deep', () => {
    expect(text.split('\n').length).toBeLessThan(500)
    const here = pages.filter((page) => page.startsWith(`skills/${skill}/`) && !page.endsWith('/SKILL.md'))
    for (const page of here) {
      expect(page.split('/').slice(2, -1)).toEqual(['references'])
      expect(text).toContain(`(${page.split('/').slice(2).join('/')})`)
      expect(read(page)).not.toMatch(/\]\((?!https?:)/)
    }
  })
})

test('every name that the skills and the index use is part of the API', () => {
  const reports = readdirSync(join(root, 'docs/api-report')).map((file) => read(`docs/api-report/${file}`))
  const api = new Set(reports.join('\n').match(/\w+/g))
  const codes = [...pages, 'docs/agents-index.md'].flatMap((page) =>
    [
      ...read(page)
        .replaceAll(/```.*?```/gs, '')
        .matchAll(/`([^`\n]+)`/g),
    ].map(([, code]) => code as string),
  )
  const called = codes.flatMap((code) =>
    [...code.matchAll(/\b(?:ctx|hf|step|run|saver|graph)((?:\.\w+)+)/g)].flatMap(([, path]) =>
      (path as string).slice(1).split('.'),
    ),
  )
  const alone = codes.flatMap((code) => /^([a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)(\(.*\))?$/.exec(code)?.[1] ?? [])
  expect(called.length).toBeGreaterThan(60)
  const ofOthers = new Set(['ToolNode', 'StateGraph', 'SqliteSaver', 'PostgresSaver', 'setTimeout'])
  expect([...new Set([...called, ...alone])].filter((name) => !api.has(name) && !ofOthers.has(name))).toEqual([])
})

test('the index for an AGENTS.md is small, of this version, and names pages that are there', () => {
  const index = read('docs/agents-index.md')
  expect(Buffer.byteLength(index)).toBeLessThanOrEqual(2_048)
  expect(index).toContain(`Holdfast ${/^\d+\.\d+/.exec(JSON.parse(read('package.json')).version)?.[0]}:`)
  for (const line of index.split('\n').filter((one) => one.startsWith('- '))) {
    let folder = 'docs'
    for (const [page] of line.matchAll(/[\w/-]+\.md/g)) {
      if (page.includes('/')) folder = join('docs', dirname(page))
      expect(existsSync(join(root, folder, page.split('/').at(-1) as string)), `${folder}: ${page}`).toBe(true)
    }
  }
})

test('llms.txt is a title, a summary, and lists of links that lead somewhere', () => {
  const text = read('llms.txt')
  expect(text).toMatch(/^# Holdfast\n\n> .+\n\n## /)
  const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link as string)
  expect(links.length).toBeGreaterThan(15)
  expect(links.filter((link) => !existsSync(join(root, link)))).toEqual([])
})
