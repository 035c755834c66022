import { HoldfastError } from '../../index.ts'

/** The JSON in the body of a request. Stops reading where it is longer than allowed. */
export async function readBody(request: Request, maxBytes: number): Promise<unknown> {
  if (Number(request.headers.get('content-length') ?? 0) > maxBytes) throw tooLong(maxBytes)
  const pieces: Uint8Array[] = []
  let length = 0
  for await (const piece of request.body ?? []) {
    length += piece.length
    // Leaving the loop cancels the rest.
    if (length > maxBytes) throw tooLong(maxBytes)
    pieces.push(piece)
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString('utf8'))
  } catch (cause) {
    throw new HoldfastError('invalid_input', 'The body is not valid JSON.', { cause })
  }
}

function tooLong(maxBytes: number): HoldfastError {
  return new HoldfastError('value_too_large', `The body is longer than ${maxBytes} bytes. Send less, or raise maxBodyBytes.`)
}
