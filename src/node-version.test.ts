import { expect, test } from 'vitest'
import { requireNode } from './node-version.ts'

test.each(['22.13.0', '22.20.1', '23.0.0', '24.21.0', '26.0.0-nightly', 'v24.0.0'])('Node %s is supported', (version) => {
  expect(() => requireNode(version)).not.toThrow()
})

test.each(['22.12.9', '22.2.0', '20.20.2', '18.0.0', 'unknown'])('Node %s is refused with unsupported_node', (version) => {
  expect(() => requireNode(version)).toThrow(
    expect.objectContaining({ code: 'unsupported_node', message: expect.stringContaining(`runs on Node ${version}`) }),
  )
})

test('without an argument, the Node of this process is looked at', () => {
  expect(() => requireNode()).not.toThrow()
})
