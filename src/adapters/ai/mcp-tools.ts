import type { ToolSet } from 'ai'
import type { Context } from '../../index.ts'

/** A client of `@ai-sdk/mcp`. */
export interface McpClient<Definitions = unknown> {
  listTools(): Promise<Definitions>
  toolsFromDefinitions(definitions: Definitions): unknown
}

/** The tools of an MCP server, listed in a step: a replay has those that the run began with, also where the server has others by now. */
export async function mcpTools<Definitions>(ctx: Context, client: McpClient<Definitions>): Promise<ToolSet> {
  const definitions = await ctx.step('list_tools', () => client.listTools(), { kind: 'tool' })
  return client.toolsFromDefinitions(definitions) as ToolSet
}
