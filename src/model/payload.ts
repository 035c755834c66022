/**
 * An encoded value: readable JSON text, or bytes where it was compressed or passed through the user's codec.
 * Stores keep payloads and never look inside them.
 */
export type Payload = string | Uint8Array
