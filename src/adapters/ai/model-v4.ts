import type { LanguageModel, LanguageModelMiddleware, ToolExecutionOptions, ToolSet, UIMessageChunk, wrapLanguageModel } from 'ai'
import type { StepHandle } from '../../index.ts'

// The provider types as the AI SDK has them: a copy of @ai-sdk/provider of our own might be of another version than the SDK's.

export type ModelV4 = ReturnType<typeof wrapLanguageModel>
export type ProviderModel = Exclude<LanguageModel, string>
export type ModelRequest = Parameters<NonNullable<LanguageModelMiddleware['wrapGenerate']>>[0]['params']
export type ModelAnswer = Awaited<ReturnType<ModelV4['doGenerate']>>
export type ModelContent = ModelAnswer['content'][number]
export type ModelStreamPart = Awaited<ReturnType<ModelV4['doStream']>>['stream'] extends ReadableStream<infer Part> ? Part : never
export type ModelUsage = ModelAnswer['usage']
export type AnyTool = ToolSet[string]
// biome-ignore lint/suspicious/noExplicitAny: the context of a tool of any kind
export type GivenToTool = ToolExecutionOptions<any>

/** Hears of the UI chunks of a step before its result is recorded: where a transcript is kept, its update belongs to that commit. */
export type ChunkListener = (step: StepHandle, chunks: readonly UIMessageChunk[]) => Promise<void> | void
