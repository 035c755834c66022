/** The effects that this process is sending, by owner and key, whichever execution began it. */
export class Sendings {
  readonly #underWay = new Map<string, Promise<unknown>>()

  /** Whether `run` of the effect is under way: in an execution that has lost the run, or ended without it. */
  has(owner: string, key: string): boolean {
    return this.#underWay.size > 0 && this.#underWay.has(nameOf(owner, key))
  }

  /** Sends an effect. While it is being sent already, nothing is sent: that sending's outcome counts. */
  send<T>(owner: string, key: string, run: () => Promise<T> | T): Promise<T> | T {
    const name = nameOf(owner, key)
    const earlier = this.#underWay.get(name)
    if (earlier !== undefined) return earlier as Promise<T>
    const sending = run()
    if (!(sending instanceof Promise)) return sending
    this.#underWay.set(name, sending)
    const forget = () => void this.#underWay.delete(name)
    sending.then(forget, forget)
    return sending
  }
}

function nameOf(owner: string, key: string): string {
  return `${owner}\0${key}`
}
