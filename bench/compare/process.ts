// One load in a process of its own. Arguments: the checkout whose `holdfast` is measured, number of the load, `leave` or `measure`, URL, size.

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { loads } from './loads.ts'

const [root, index, act, url, size] = process.argv.slice(2) as [string, string, 'leave' | 'measure', string, string]
const api = (await import(pathToFileURL(join(root, 'src/index.ts')).href)) as typeof import('holdfast')
const load = loads[Number(index)]!
if (act === 'leave') await load.leave?.(api, url, Number(size))
else console.log(JSON.stringify(await load.measure(api, url, Number(size))))
