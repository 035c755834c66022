import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deltaChannelHistoryTests, validate } from '@langchain/langgraph-checkpoint-validation'
import { type Holdfast, open } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Place, storeKinds } from '../behaviour/places.ts'

// The suite takes these from the global scope.
Object.assign(globalThis, { describe, it, expect, beforeAll, beforeEach, afterAll, afterEach })

/** The validation suite of LangGraph, all 726 tests of it, on one of our stores, under our own name: nothing of it is left out. */
export function validateSaverOn(name: string): void {
  const kind = storeKinds.find((one) => one.name === name)
  if (kind === undefined) return
  let [folder, place, hf]: [string, Place | undefined, Holdfast | undefined] = ['', undefined, undefined]
  let owners = 0
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-langgraph-'))
    place = await kind.create(folder, () => 0)
    hf = await open(place.target, { worker: false, logger: false })
  })
  afterAll(async () => {
    await hf?.close()
    await place?.leave?.()
    rmSync(folder, { recursive: true, force: true })
  })
  const initializer = {
    checkpointerName: `HoldfastSaver on ${name}`,
    createCheckpointer: () => new HoldfastSaver((hf as Holdfast).as(`owner ${++owners}`)),
  }
  validate(initializer)
  deltaChannelHistoryTests(initializer)
}
