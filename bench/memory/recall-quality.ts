import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, type RecalledFact } from 'holdfast'
import { embedLocally } from './embed-locally.ts'

export interface Quality {
  readonly facts: number
  readonly questions: number
  /** Share of the questions whose fact is among the first five, by how they were ranked. */
  readonly lexical: Shares
  readonly vector: Shares
  readonly hybrid: Shares
}

interface Shares {
  readonly all: number
  /** Of questions in the words of the fact, and of those in other words. */
  readonly sameWords: number
  readonly otherWords: number
}

/** Recall@5 over the labelled questions of `recall-questions.txt`. */
export async function measureQuality(url: string): Promise<Quality> {
  const labelled = readLabelled()
  const plain = await open(url, { worker: false })
  const alice = plain.memory.of('alice')
  const ids = new Map<string, string>()
  for (const { fact } of labelled) ids.set(fact, (await alice.remember(fact)).id)
  const hf = await open(url, { worker: false, embed: embedLocally })
  const all = async (question: string) => hf.memory.of('alice').recall(question, { limit: labelled.length })
  while ((await all('Alice')).filter(({ scores }) => scores.vector !== undefined).length < labelled.length) await sleep(20)
  const byVector = (facts: readonly RecalledFact[]) =>
    facts.toSorted((a, b) => (b.scores.vector ?? 0) - (a.scores.vector ?? 0)).slice(0, 5)
  const questions = labelled.flatMap(({ fact, asked }) =>
    asked.map((question, index) => ({ question, id: ids.get(fact), isInSameWords: index < 2 })),
  )
  const shares = async (ask: (question: string) => Promise<readonly RecalledFact[]>): Promise<Shares> => {
    const hits = await Promise.all(
      questions.map(async ({ question, id, isInSameWords }) => ({
        isHit: (await ask(question)).some((fact) => fact.id === id),
        isInSameWords,
      })),
    )
    const share = (some: typeof hits) => some.filter(({ isHit }) => isHit).length / some.length
    return {
      all: share(hits),
      sameWords: share(hits.filter((hit) => hit.isInSameWords)),
      otherWords: share(hits.filter((hit) => !hit.isInSameWords)),
    }
  }
  const quality = {
    facts: labelled.length,
    questions: questions.length,
    lexical: await shares((question) => alice.recall(question, { limit: 5 })),
    vector: await shares(async (question) => byVector(await all(question))),
    hybrid: await shares((question) => hf.memory.of('alice').recall(question, { limit: 5 })),
  }
  await hf.close()
  await plain.close()
  return quality
}

function readLabelled(): { readonly fact: string; readonly asked: readonly string[] }[] {
  const text = readFileSync(join(import.meta.dirname, 'recall-questions.txt'), 'utf8')
  return text
    .split('\n\n')
    .filter((block) => !block.startsWith('#'))
    .map((block) => {
      const [fact = '', ...asked] = block.trim().split('\n')
      return { fact, asked: asked.map((line) => line.slice(2)) }
    })
}
