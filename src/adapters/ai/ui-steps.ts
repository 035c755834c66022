import type { UIMessageChunk } from 'ai'
import type { StreamItem } from '../../index.ts'

/**
 * Turns what a run has written into what a page is told. All readers get the same sequence, from whatever offset on, so it is read from the
 * beginning. An attempt that was given up leaves its parts standing until the next begins, whose `start-step` becomes `reset-step`: one
 * chunk stays one offset, and a run that was stopped keeps what it had said.
 */
export class UiSteps {
  /** Attempts of model calls, by their parts. */
  readonly #attempts = new Set<string>()
  /** Tool calls without a result. */
  readonly #calls = new Map<string, ToolCall>()
  #begun = 0
  #isOpen = false
  #isGivenUp = false

  /** A step has begun that is not finished. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  /** How many steps have begun; one that was given up and begun again is one. */
  get begun(): number {
    return this.#begun
  }

  /** The approvals for which everything waits that is under way; empty where something is at work. */
  get awaited(): readonly string[] {
    const approvals = [...this.#calls.values()].map(({ approval }) => approval)
    return approvals.every((id) => id !== undefined) ? approvals : []
  }

  /** What a chunk of the stream means for a page. */
  take({ chunk, part, step, isAborted }: StreamItem<UIMessageChunk>): UIMessageChunk[] {
    const agent = step?.slice(0, step.lastIndexOf('/') + 1) ?? ''
    if (chunk === undefined) {
      this.#isGivenUp ||= this.#attempts.has(part)
      return []
    }
    if (chunk.type === 'start-step') return this.#begin(chunk, part, agent)
    if (isAborted === true) return []
    this.#note(chunk, agent)
    return [chunk]
  }

  #begin(chunk: UIMessageChunk, part: string, agent: string): UIMessageChunk[] {
    this.#attempts.add(part)
    // A sub-agent begins inside a call of another one.
    for (const [id, call] of this.#calls) if (call.agent === agent) this.#calls.delete(id)
    const isAgain = this.#isGivenUp
    const wasOpen = this.#isOpen
    this.#isGivenUp = false
    this.#isOpen = true
    if (!isAgain) this.#begun++
    if (isAgain) return [{ type: 'reset-step' }]
    return wasOpen ? [{ type: 'finish-step' }, chunk] : [chunk]
  }

  #note(chunk: UIMessageChunk, agent: string): void {
    switch (chunk.type) {
      case 'tool-input-available':
        if (chunk.providerExecuted !== true && !this.#calls.has(chunk.toolCallId)) this.#calls.set(chunk.toolCallId, { agent })
        return
      case 'tool-approval-request':
        this.#wait(chunk.toolCallId, chunk.approvalId)
        return
      case 'tool-approval-response':
        for (const [id, { approval }] of this.#calls) if (approval === chunk.approvalId) this.#wait(id, undefined)
        return
      case 'tool-output-available':
        if (chunk.preliminary !== true) this.#calls.delete(chunk.toolCallId)
        return
      case 'tool-input-error':
      case 'tool-output-error':
      case 'tool-output-denied':
        this.#calls.delete(chunk.toolCallId)
    }
  }

  #wait(toolCallId: string, approval: string | undefined): void {
    const call = this.#calls.get(toolCallId)
    if (call !== undefined) call.approval = approval
  }
}

interface ToolCall {
  /** The scope of the agent that made it. */
  readonly agent: string
  /** What it waits for. */
  approval?: string | undefined
}
