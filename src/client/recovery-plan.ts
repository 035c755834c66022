import type { AnyPlan, PlanStep } from '../define/plan.ts'
import { retryPolicy } from '../model/retry.ts'
import { stepDeathLimit } from '../model/run.ts'

type Step = PlanStep<unknown>

/**
 * What happens when a step of the plan fails, as Markdown: a table with a row per step, and a flowchart. Generated from the plan's options,
 * so it is what will happen.
 */
export function recoveryPlan(plan: AnyPlan): string {
  const stages = plan.stages as readonly (readonly Step[])[]
  const version = plan.version === 1 ? '' : ` (version ${plan.version})`
  const rows = stages.flatMap((stage, index) =>
    stage.map((step, place) =>
      row(plan, step, { number: numberOf(stage, index, place), before: stages[index - 1], stages, index }),
    ),
  )
  return [
    `# Recovery plan: ${text(plan.name)}${version}`,
    '',
    table([headings, ...rows]),
    '',
    '```mermaid',
    ...flowchart(stages),
    '```',
    '',
  ].join('\n')
}

const headings = [
  '#',
  'Failure point',
  'What can fail',
  'Impact',
  'Recovery action',
  'Checkpoint',
  'Resume behaviour',
  'Notification',
]

interface Place {
  readonly number: string
  readonly before: readonly Step[] | undefined
  readonly stages: readonly (readonly Step[])[]
  readonly index: number
}

function row(plan: AnyPlan, step: Step, place: Place): string[] {
  const { impact } = step.options
  return [
    place.number,
    code(step.name),
    whatCanFail(step),
    impact === undefined ? impactOf(step, place) : text(impact),
    recoveryOf(plan, step),
    place.before === undefined ? 'Start of the run' : `After ${listed(place.before)}`,
    `Continues at ${code(step.name)}; results recorded inside it are kept`,
    notificationOf(step),
  ]
}

/** `2` for a single step, `2a` and `2b` for parallel ones. */
function numberOf(stage: readonly Step[], index: number, place: number): string {
  return stage.length === 1 ? `${index + 1}` : `${index + 1}${String.fromCharCode(97 + (place % 26))}${place >= 26 ? place : ''}`
}

function whatCanFail({ options }: Step): string {
  const { canFail, timeoutMs } = options
  const causes = [canFail === undefined ? 'It throws' : text(canFail)]
  if (timeoutMs !== undefined) causes.push(`it takes longer than ${duration(timeoutMs)}`)
  causes.push(`its worker dies during it ${stepDeathLimit} times`)
  return causes.join('; ')
}

function impactOf({ options }: Step, { stages, index }: Place): string {
  const later = stages.slice(index + 1).flat()
  if (options.fallback !== undefined) return 'The result is that of the fallback'
  if (options.onFailure === 'skip') return 'The run continues without its result'
  if (options.onFailure === 'pause') return 'The run is paused until a person resumes it'
  return later.length === 0 ? 'The run fails' : `The run fails before ${listed(later)}`
}

function recoveryOf(plan: AnyPlan, { options }: Step): string {
  const { fallback, onFailure } = options
  const parts = [attemptsOf(plan, options.retry)]
  // A function that was written inline is named after the option.
  if (fallback !== undefined)
    parts.push(['', 'fallback'].includes(fallback.name) ? 'fallback' : `fallback ${code(fallback.name)}`)
  if (onFailure === 'skip') parts.push('skip it')
  else if (onFailure === 'pause') parts.push('pause; `run.resume()` retries it')
  else parts.push('fail; `run.retry()` retries it')
  return parts.join(', then ')
}

function attemptsOf(plan: AnyPlan, retry: Step['options']['retry']): string {
  const { attempts, minMs, maxMs, factor, jitter } = retryPolicy(retry, plan.options.retry)
  if (attempts === 1) return '1 attempt'
  const delay = (n: number) => Math.min(maxMs, minMs * factor ** n)
  const [first, last] = [delay(0), delay(attempts - 2)].sort((a, b) => a - b) as [number, number]
  const apart = first === last ? duration(first) : `${duration(first)} to ${duration(last)}`
  // Without its own policy, a step does not retry what the calls inside it have retried.
  const whose = retry === undefined ? ' (calls inside have their own)' : ''
  return `${attempts} attempts${whose}, ${jitter ? 'up to ' : ''}${apart} apart`
}

function notificationOf({ options }: Step): string {
  const log = '`step_failed` in the log'
  if (options.onFailure === 'skip') return log
  const stops = options.onFailure === 'pause' ? '`run_paused`' : '`run_failed`'
  return options.fallback === undefined ? stops : `${log}; ${stops} if the fallback fails too`
}

function flowchart(stages: readonly (readonly Step[])[]): string[] {
  const lines = ['flowchart TD', '  start([start])']
  let arrows = ['start -->']
  for (const [index, stage] of stages.entries()) {
    const after: string[] = []
    const isGroup = stage.length > 1
    if (isGroup) lines.push(`  subgraph group${index + 1} ["in parallel"]`)
    const indent = isGroup ? '    ' : '  '
    const ids = stage.map((_, place) => `step${numberOf(stage, index, place)}`)
    for (const [place, { name, options }] of stage.entries()) {
      const id = ids[place] as string
      lines.push(`${indent}${id}[${label(name)}]`)
      if (options.fallback !== undefined) {
        lines.push(`${indent}${id}f[${label(`${name}: fallback`)}]`, `${indent}${id} -. fails .-> ${id}f`)
        after.push(`${id} -->`)
      }
      const last = options.fallback === undefined ? id : `${id}f`
      after.push(options.onFailure === 'skip' ? `${last} -- done or skipped -->` : `${last} -->`)
    }
    if (isGroup) lines.push('  end')
    for (const [place, { options }] of stage.entries()) {
      const id = ids[place] as string
      const last = options.fallback === undefined ? id : `${id}f`
      lines.push(...arrows.map((arrow) => `  ${arrow} ${id}`))
      if (options.onFailure === 'pause') {
        lines.push(`  ${last} -. fails .-> ${id}p[/paused/]`, `  ${id}p -. resumed .-> ${id}`)
      } else if (options.onFailure !== 'skip') lines.push(`  ${last} -. fails .-> failed([failed])`)
    }
    arrows = after
  }
  return [...lines, ...arrows.map((arrow) => `  ${arrow} completed([completed])`)]
}

function listed(steps: readonly Step[]): string {
  return steps.map(({ name }) => code(name)).join(', ')
}

function table(rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  const [head = [], ...body] = rows
  return [line(head), line(head.map(() => '---')), ...body.map(line)].join('\n')
}

/** A name as code in a table's cell, whatever is in it. */
function code(name: string): string {
  const escaped = name.replaceAll('|', '\\|')
  return name.includes('`') ? `\`\` ${escaped} \`\`` : `\`${escaped}\``
}

/** Text in a table's cell. */
function text(given: string): string {
  return given.replaceAll(/\s+/g, ' ').replaceAll('|', '\\|').trim()
}

function label(name: string): string {
  return `"${name.replaceAll('#', '#35;').replaceAll('"', '#quot;')}"`
}

function duration(ms: number): string {
  if (ms < 1_000) return `${ms} ms`
  const units = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'min'],
  ] as const
  for (const [size, unit] of units) if (ms >= 2 * size || ms === size) if (ms % size === 0) return `${ms / size} ${unit}`
  return `${Math.round(ms / 100) / 10} s`
}
