// LangGraph.js with each checkpointer: steps that append 1 kB to a list; bytes kept, time per step, state, history, round trips
//
// npm run bench -- langgraph [--steps 400] [--rounds 3] [--only NAME,…]
//
// One run of a graph with so many super-steps. Time per step is between one node and the next, over the first and the last 50, with what the
// graph takes without a checkpointer next to it. The official savers are used as published; SQLite with `synchronous=FULL` where it says so.

import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Annotation, MemorySaver, START, StateGraph } from '@langchain/langgraph'
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import { open } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'
import { wrapStore } from 'holdfast/testing'
import pg from 'pg'
import { openPostgresStore } from '../src/stores/postgres/postgres-store.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'
import type { Store } from '../src/store/store.ts'
import { sharedPostgres, startPostgres } from './langgraph-servers.ts'

const { values } = parseArgs({
  options: { steps: { type: 'string', default: '400' }, rounds: { type: 'string', default: '3' }, only: { type: 'string' } },
})
