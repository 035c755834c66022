// A provider of mail: a folder. What it was asked to send is a line in a file, so that the demo can count.

import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

export interface Mail {
  readonly key: string
  readonly to: string
  readonly attachment: string
}

export class Mailer {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  async send(mail: Mail): Promise<Mail> {
    await mkdir(this.#folder, { recursive: true })
    await appendFile(join(this.#folder, 'sent.txt'), `${mail.key}\n`)
    await writeFile(this.#fileOf(mail.key), JSON.stringify(mail))
    return mail
  }

  async find(key: string): Promise<Mail | undefined> {
    const text = await readFile(this.#fileOf(key), 'utf8').catch(() => undefined)
    return text === undefined ? undefined : (JSON.parse(text) as Mail)
  }

  /** Keys of the mails that went out, one for each time. */
  async sent(): Promise<string[]> {
    const text = await readFile(join(this.#folder, 'sent.txt'), 'utf8').catch(() => '')
    return text.split('\n').filter((line) => line !== '')
  }

  #fileOf(key: string): string {
    return join(this.#folder, `${encodeURIComponent(key)}.json`)
  }
}
