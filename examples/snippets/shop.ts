import { scriptedModel } from '../agent/scripted-model.ts'

// What the agent of README works with: a model that needs no key, a shop, and a bank that pays once for each key.

export const model = scriptedModel({ msPerWord: 0 })

export const shop = {
  find: async (order: string) => ({ order, item: 'kettle', price: 120 }),
}

const paid = new Map<string, { receipt: string }>()
export const bank = {
  refund: async (key: string, order: string, amount: number) => {
    const receipt = paid.get(key) ?? { receipt: `r-${order}-${amount}` }
    paid.set(key, receipt)
    return receipt
  },
}
