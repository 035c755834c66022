/** What helps a run whose function no longer does what its log says. */
export function restoreAdvice({ name, version }: { readonly name: string; readonly version: number }): string {
  return (
    `Restore what version ${version} of workflow "${name}" did and call run.resume(). To change the code, add it as version ${version + 1} ` +
    `and keep version ${version} registered: open(url, { workflows: [v${version}, v${version + 1}] }). run.cancel() ends the run if its undos can be found, ` +
    'run.cancel({ undo: false }) without undoing.'
  )
}
