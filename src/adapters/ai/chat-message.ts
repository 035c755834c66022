import { safeValidateUIMessages, type UIMessage } from 'ai'
import { HoldfastError } from '../../index.ts'

/** A message that a page sends. */
export async function validMessage(message: unknown): Promise<UIMessage> {
  const checked = await safeValidateUIMessages({ messages: [message] })
  const [valid] = checked.success ? checked.data : []
  if (valid === undefined || typeof valid.id !== 'string' || valid.id === '')
    throw new HoldfastError('invalid_input', 'The last message is not a UI message of the AI SDK.')
  // It would fail this answer and every later one.
  for (const part of valid.parts)
    if (part.type === 'file' && !isFileUrl(part.url))
      throw new HoldfastError(
        'invalid_input',
        'The url of a file in the last message is neither a data URL nor one of http or https.',
      )
  return valid
}

function isFileUrl(url: string): boolean {
  return /^data:[^,]*,/.test(url) || (/^https?:/i.test(url) && URL.canParse(url))
}
