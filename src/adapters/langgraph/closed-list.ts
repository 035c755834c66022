import { Document } from '@langchain/core/documents'
import {
  AIMessage,
  AIMessageChunk,
  ChatMessage,
  ChatMessageChunk,
  FunctionMessage,
  FunctionMessageChunk,
  HumanMessage,
  HumanMessageChunk,
  RemoveMessage,
  SystemMessage,
  SystemMessageChunk,
  ToolMessage,
  ToolMessageChunk,
} from '@langchain/core/messages'
import { ChatPromptValue, StringPromptValue } from '@langchain/core/prompt_values'
import { Command, Overwrite, Send } from '@langchain/langgraph'
import { DeltaSnapshot } from '@langchain/langgraph-checkpoint'

/** How objects of one class are kept: what they are made of, and how they are made again from that. */
interface Kept {
  readonly fields: (object: never) => Record<string, unknown>
  readonly revive: (fields: Record<string, unknown>) => unknown
}

type Maker = new (fields: never) => unknown

const messages = {
  AIMessage,
  AIMessageChunk,
  ChatMessage,
  ChatMessageChunk,
  FunctionMessage,
  FunctionMessageChunk,
  HumanMessage,
  HumanMessageChunk,
  RemoveMessage,
  SystemMessage,
  SystemMessageChunk,
  ToolMessage,
  ToolMessageChunk,
}

/** Objects of LangChain, by the id that they give themselves. They are made again by their constructors, from what these were given. */
const ofLangChain = new Map<string, string>()
/** All classes whose objects can be stored, by the name under which they are. Nothing else is ever made from what is stored. */
const classes = new Map<string, Kept>()

for (const [name, maker] of Object.entries({ ...messages, Document, ChatPromptValue, StringPromptValue } as Record<
  string,
  Maker
>)) {
  classes.set(name, { fields: constructorFields, revive: (fields) => new maker(fields as never) })
}
for (const name of Object.keys(messages)) ofLangChain.set(`langchain_core/messages/${name}`, name)
ofLangChain.set('langchain_core/documents/document/Document', 'Document')
ofLangChain.set('langchain_core/prompt_values/ChatPromptValue', 'ChatPromptValue')
ofLangChain.set('langchain_core/prompt_values/StringPromptValue', 'StringPromptValue')

classes.set('Send', {
  fields: ({ node, args, timeout }: Send & { timeout?: unknown }) => ({ node, args, ...(timeout !== undefined && { timeout }) }),
  revive: ({ node, args, timeout }) =>
    new (Send as new (...args: unknown[]) => Send)(node, args, ...(timeout === undefined ? [] : [{ timeout }])),
})
classes.set('Command', {
  fields: ({ graph, update, resume, goto }: Command) => withoutUndefined({ graph, update, resume, goto }),
  revive: (fields) => new Command(fields),
})
classes.set('Overwrite', {
  fields: ({ value }: Overwrite<unknown>) => ({ value }),
  revive: ({ value }) => new Overwrite(value),
})
classes.set('DeltaSnapshot', {
  fields: ({ value }: DeltaSnapshot) => ({ value }),
  revive: ({ value }) => new DeltaSnapshot(value),
})
classes.set('RegExp', {
  fields: ({ source, flags }: RegExp) => ({ source, flags }),
  revive: ({ source, flags }) => new RegExp(String(source), String(flags)),
})

/** The name under which objects of its class are stored; undefined for all that are not on the list. */
export function nameOf(object: object): string | undefined {
  if (object instanceof RegExp) return 'RegExp'
  const { lg_name, lc_serializable } = object as { lg_name?: unknown; lc_serializable?: unknown }
  if (typeof lg_name === 'string')
    return lg_name !== 'RegExp' && !ofLangChainNames.has(lg_name) && classes.has(lg_name) ? lg_name : undefined
  if (lc_serializable !== true) return undefined
  const { lc_id } = object as { lc_id?: unknown }
  return Array.isArray(lc_id) ? ofLangChain.get(lc_id.join('/')) : undefined
}

const ofLangChainNames = new Set(ofLangChain.values())

export function fieldsOf(name: string, object: object): Record<string, unknown> {
  return (classes.get(name) as Kept).fields(object as never)
}

/** Undefined where the list has no such name. */
export function revive(name: string, fields: Record<string, unknown>): unknown {
  return classes.get(name)?.revive(fields)
}

/** As `toJSON` of LangChain collects them: what the constructor was given, as it is now. */
function constructorFields(object: { readonly lc_kwargs: Record<string, unknown> }): Record<string, unknown> {
  const now = object as unknown as Record<string, unknown>
  const { lc_kwargs } = object
  return withoutUndefined(Object.fromEntries(Object.keys(lc_kwargs).map((key) => [key, key in now ? now[key] : lc_kwargs[key]])))
}

function withoutUndefined(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}
