/** How a call answers whose run continues without this execution. */
export function never<T>(): Promise<T> {
  return new Promise(() => {})
}
