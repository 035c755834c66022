/** Targets and what was measured against them. A missed one is said, and fails the process only with --strict. */
export class Scorecard {
  readonly #lines: string[] = []
  #missed = 0

  atMost(name: string, measured: number, target: number, note = ''): void {
    this.#add(measured <= target, name, `${format(measured)} (target ≤ ${format(target)})`, note)
  }

  atLeast(name: string, measured: number, target: number, note = ''): void {
    this.#add(measured >= target, name, `${format(measured)} (target ≥ ${format(target)})`, note)
  }

  print(): void {
    console.log('\ntargets')
    for (const line of this.#lines) console.log(line)
    console.log(this.#missed === 0 ? 'all met in this run' : `${this.#missed} missed in this run`)
    if (this.#missed > 0 && process.argv.includes('--strict')) process.exitCode = 1
  }

  #add(isMet: boolean, name: string, verdict: string, note: string): void {
    if (!isMet) this.#missed++
    this.#lines.push(`  ${isMet ? 'PASS' : 'MISS'}  ${name}: ${verdict}${note === '' ? '' : `; ${note}`}`)
  }
}

function format(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2)
}
