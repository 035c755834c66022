import type { ModelContent } from './model-v4.ts'

/** Records have no URLs: the address of a file is kept as text. */
export function withHref(part: ModelContent): ModelContent {
  if (!isFile(part) || part.data.type !== 'url') return part
  return { ...part, data: { ...part.data, url: String(part.data.url) as never } }
}

/** As the SDK expects it. */
export function withUrl(part: ModelContent): ModelContent {
  if (!isFile(part) || part.data.type !== 'url') return part
  return { ...part, data: { ...part.data, url: new URL(part.data.url) } }
}

function isFile(part: ModelContent): part is Extract<ModelContent, { type: 'file' | 'reasoning-file' }> {
  return part.type === 'file' || part.type === 'reasoning-file'
}
