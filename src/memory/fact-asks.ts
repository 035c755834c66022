import { type FactSource, readMarks } from '../model/fact.ts'
import {
  checkChange,
  checkEdit,
  checkList,
  checkRecall,
  checkRemember,
  type FactChangeOptions,
  type FactEdit,
  type FactListOptions,
  type RecallOptions,
  type RememberOptions,
} from '../model/fact-options.ts'
import { checkId } from '../model/ids.ts'
import type { Due } from '../store/change.ts'
import type { EditAct, FactAct, FactOrigin, RememberAct } from './fact-acts.ts'
import type { ListAsk } from './list-facts.ts'
import type { RecallAsk } from './recall.ts'

/** What a caller wants, checked, as an act on facts or a question about them. */

export function rememberAct(text: string, options: RememberOptions, origin: FactOrigin): RememberAct {
  checkRemember(text, options)
  const { kind, tags = [], source, trust = 'stated', ttlMs, validFrom, validUntil, supersedes, why, by } = options
  const { threadId, runId, step } = origin
  const from: FactSource = {
    ...(threadId !== undefined && { threadId }),
    ...(runId !== undefined && { runId }),
    ...(step !== undefined && { step }),
    ...(source !== undefined && { name: source }),
  }
  return {
    ...{ act: 'remember', text: text.trim(), tags: [...tags], trust, source: from, ...origin, ...reason({ why, by }) },
    ...(kind !== undefined && { factKind: kind }),
    ...(ttlMs !== undefined && { expires: dueIn(ttlMs) }),
    ...(validFrom !== undefined && { validFrom }),
    ...(validUntil !== undefined && { validUntil }),
    ...(supersedes !== undefined && { supersedes }),
  }
}

export function editAct(id: string, changes: FactEdit, options: FactChangeOptions, origin: FactOrigin): EditAct {
  checkEdit(changes, options)
  const { text, kind, tags, trust, ttlMs, validFrom, validUntil } = changes
  return {
    ...{ act: 'edit', id: checkFactId(id), ...origin, ...reason(options) },
    ...(text !== undefined && { text: readMarks(text.trim()).plain }),
    ...(kind !== undefined && { factKind: kind }),
    ...(tags !== undefined && { tags: [...tags] }),
    ...(trust !== undefined && { trust }),
    ...(ttlMs !== undefined && { expires: dueIn(ttlMs) }),
    ...(validFrom !== undefined && { validFrom }),
    ...(validUntil !== undefined && { validUntil }),
  }
}

export function namingAct(
  act: 'forget' | 'undo' | 'promote',
  id: string,
  options: FactChangeOptions,
  origin: FactOrigin,
): Extract<FactAct, { act: 'forget' | 'undo' | 'promote' }> {
  checkChange(act, options)
  return { act, id: checkFactId(id), ...origin, ...reason(options) }
}

export function recallAsk(
  query: string,
  options: RecallOptions,
  { now, threadId }: { readonly now: number; readonly threadId?: string },
): RecallAsk {
  checkRecall(query, options)
  const { limit = 10, tags = [], kind, minScore = 0, asOf, trust = ['stated', 'inferred'], fork = threadId } = options
  return {
    ...{ query, limit, tags, minScore, trust, now },
    ...(kind !== undefined && { kind }),
    ...(asOf !== undefined && { asOf }),
    ...(fork !== undefined && { threadId: fork }),
  }
}

export function listAsk(
  options: FactListOptions,
  { now, threadId }: { readonly now: number; readonly threadId?: string },
): ListAsk {
  checkList(options)
  const { tags = [], kind, includeRetracted = false, limit = 100, cursor, fork = threadId } = options
  return {
    ...{ tags, includeRetracted, limit, now },
    ...(kind !== undefined && { kind }),
    ...(cursor !== undefined && { cursor }),
    ...(fork !== undefined && { threadId: fork }),
  }
}

export function checkFactId(id: unknown): string {
  return checkId('id of a fact', id)
}

function dueIn(ttlMs: number): Due {
  return ttlMs === Number.POSITIVE_INFINITY ? 'never' : { inMs: Math.ceil(ttlMs) }
}

function reason({ why, by }: { readonly why?: string | undefined; readonly by?: string | undefined }): FactChangeOptions {
  return { ...(why !== undefined && { why }), ...(by !== undefined && { by }) }
}
