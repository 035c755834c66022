import { HoldfastSaver } from 'holdfast/langgraph'
import { it } from 'vitest'
import { onEveryStore } from '../behaviour/stores.ts'
import { defects } from './defects.ts'

onEveryStore('a checkpointer', ({ open }) => {
  for (const { sentence, isRight } of defects) {
    it(sentence, async () => {
      await isRight(new HoldfastSaver(await open({ worker: false })) as never)
    })
  }
})
