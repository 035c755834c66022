/** A fault planted in the sources, and the test that must see it. */
export interface Mutant {
  readonly name: string
  /** What is wrong then, in a sentence. */
  readonly wrong: string
  /** Exact replacements under src; each text must be there once, or the mutant is stale. */
  readonly edits: readonly { readonly file: string; readonly find: string; readonly put: string }[]
  /** A test file, and a part of the names of the tests in it. */
  readonly test: { readonly file: string; readonly name: string }
  /** One of those that every change is tried against. */
  readonly isRequired?: boolean
}

/**
 * The suite is believed because it sees these. Faults that were found and mended come in at the end, so that they stay
 * mended.
 */
export const mutants: readonly Mutant[] = [
  {
    name: 'epoch-unchecked',
    wrong: 'a step is written under a lease that was lost',
    isRequired: true,
    edits: [
      {
        file: 'model/guard.ts',
        find: "if (thread === undefined || !holdsLease(run, guard)) return 'lease_lost'",
        put: "if (thread === undefined || run === undefined) return 'lease_lost'",
      },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on sqlite > nothing of a stopped holder' },
  },
  {
    name: 'intent-after-call',
    wrong: 'an effect is carried out before its intent is durable',
    isRequired: true,
    edits: [
      {
        file: 'engine/calls/effect.ts',
        find: "    const taken = await this.#host.journal.intend(event, { kind: 'intend', key: this.#key, name })\n",
        put: "    this.early = await this.#working(() => this.#enter())\n    const taken = await this.#host.journal.intend(event, { kind: 'intend', key: this.#key, name })\n",
      },
      {
        file: 'engine/calls/effect.ts',
        find: '    const sent = await this.#working(() =>\n      host.run.engine.sendings.send(host.run.owner, this.#key, host.run.runId, () => this.#enter()),\n    )\n',
        put: '    const sent = this.early ?? (await this.#working(() => this.#enter()))\n    this.early = undefined\n',
      },
      {
        file: 'engine/calls/effect.ts',
        find: '  readonly #key: string\n',
        put: '  readonly #key: string\n  early: { ok: true; value: T } | { ok: false; error: unknown } | undefined\n',
      },
    ],
    test: { file: 'test/crash/flush.test.ts', name: 'flushed before its call' },
  },
  {
    name: 'two-transactions',
    wrong: "an effect's event and its operation are written in two transactions",
    edits: [
      {
        file: 'stores/sqlite/sqlite-store.ts',
        find: '      return write(({ commits }, hints) => commits.applyAll(changes, now(), hints), { mustSync })\n',
        put: [
          "      if (changes.some((change) => change.operation?.kind === 'complete')) {",
          '        const events = changes.map(({ operation: _, ...rest }) => rest)',
          '        const answers = await write(({ commits }, hints) => commits.applyAll(events, now(), hints), { mustSync })',
          '        const operations = changes.map((change) => ({ ...change, events: [] }))',
          '        await write(({ commits }, hints) => commits.applyAll(operations, now(), hints), { mustSync })',
          '        return answers',
          '      }',
          '      return write(({ commits }, hints) => commits.applyAll(changes, now(), hints), { mustSync })',
          '',
        ].join('\n'),
      },
    ],
    test: { file: 'test/crash/crash.test.ts', name: 'on sqlite > a transaction is there whole' },
  },
  {
    name: 'count-after-attempt',
    wrong: 'a claim is counted when its attempt is over, not before it begins',
    edits: [
      { file: 'stores/sqlite/claim.ts', find: 'claims_without_progress = claims_without_progress + 1,', put: '' },
      {
        file: 'model/run-change.ts',
        find: '  return uncountClaim === true ? Math.max(0, claims - 1) : claims\n',
        put: '  return uncountClaim === true ? claims : claims + 1\n',
      },
    ],
    test: { file: 'test/crash/poison.test.ts', name: 'on sqlite > a run that ends its process' },
  },
  {
    name: 'ack-before-flush',
    wrong: 'a write is acknowledged before it has reached the disk',
    isRequired: true,
    edits: [
      {
        file: 'stores/sqlite/connection.ts',
        find: "const level = durability === 'full' ? 2 : 1",
        put: 'const level = durability.length * 0',
      },
    ],
    test: { file: 'test/crash/flush.test.ts', name: 'every acknowledgement' },
  },
  {
    name: 'key-from-attempt',
    wrong: "an effect's key changes from attempt to attempt",
    edits: [
      {
        file: 'engine/calls/effect.ts',
        find: 'options.key === undefined ? host.calls.keyOf(call) :',
        put: "options.key === undefined ? host.calls.keyOf(call) + '!' + (call.history?.failures ?? 0) :",
      },
    ],
    test: { file: 'test/crash/crash.test.ts', name: 'on sqlite > an effect whose answer got lost' },
  },
  {
    name: 'result-before-ack',
    wrong: 'the function gets a result before its commit is acknowledged',
    edits: [
      {
        file: 'engine/execution/run-journal.ts',
        find: '      const answer = await this.#writes.write(change, options)\n      if (!answer.ok) return await this.#writes.refused(answer.refusal, options)\n      seq = ',
        put: '      const answer = { lastSeq: 0, hasMail: false }\n      this.#writes.write(change, options).catch(() => {})\n      seq = ',
      },
    ],
    test: { file: 'test/crash/windows.test.ts', name: 'on sqlite > a plain step' },
  },
  {
    name: 'epoch-by-order',
    wrong: 'a lease is compared by >= instead of equality',
    edits: [
      {
        file: 'model/guard.ts',
        find: 'run.epoch === lease.epoch && run.leaseId === lease.leaseId',
        put: 'run.epoch <= lease.epoch',
      },
    ],
    test: { file: 'test/stores/sqlite.test.ts', name: 'S2: the guard is equality' },
  },
  {
    name: 'checksum-unread',
    wrong: 'checksums are not verified when something is read',
    edits: [
      {
        file: 'model/checksum.ts',
        find: '  if (expected === found) return\n',
        put: '  if (expected === found || what !== null) return\n',
      },
    ],
    test: { file: 'test/stores/sqlite-files.test.ts', name: 'flipped bits' },
  },
  {
    name: 'replay-out-of-order',
    wrong: 'a replay hands results out in another order than that of the log',
    edits: [
      {
        file: 'engine/replay/tape-builder.ts',
        find: '.sort((a, b) => a.seq - b.seq)',
        put: '.sort((a, b) => a.key.localeCompare(b.key))',
      },
    ],
    test: { file: 'test/behaviour/replay.test.ts', name: 'in the order in which they were recorded' },
  },
  {
    name: 'lease-by-own-clock',
    wrong: "leases are measured by the worker's clock instead of the store's",
    edits: [
      {
        file: 'stores/sqlite/sqlite-store.ts',
        find: 'const now = Date.now() + offsetMs()',
        put: 'const now = Date.now() + offsetMs() * 0',
      },
    ],
    test: { file: 'test/stores/sqlite.test.ts', name: 'S9' },
  },
  {
    name: 'blind-repeat',
    wrong: 'an effect with neither check nor idempotent is sent again when a crash hid its outcome',
    edits: [
      {
        file: 'engine/calls/effect.ts',
        find: 'if (this.#options.idempotent !== true) return this.#records.markUnsure(stage.error)',
        put: 'if (stage.byCrash) return this.#send()',
      },
    ],
    test: { file: 'test/crash/windows.test.ts', name: 'on sqlite > an effect with neither' },
  },
  {
    name: 'everybody-dead',
    wrong: 'a holder that lives is taken for dead',
    edits: [
      {
        file: 'stores/sqlite/holder.ts',
        find: "return found.start !== holder.start || found.state === 'Z' || found.state === 'X'",
        put: 'return holder.pid !== here.pid',
      },
    ],
    test: { file: 'test/stores/sqlite-files.test.ts', name: 'runs of a holder that is stopped stay its own' },
  },
  {
    name: 'nobody-dead',
    wrong: 'a run whose holder died waits for the lease',
    edits: [
      {
        file: 'stores/sqlite/holder.ts',
        find: 'if (found === null) return isNobody(holder.pid)',
        put: 'if (found === null) return false',
      },
    ],
    test: { file: 'test/stores/sqlite-files.test.ts', name: 'are claimed at once' },
  },
  {
    name: 'release-counts',
    wrong: 'handing a run over at a shutdown counts as a death',
    edits: [
      {
        file: 'engine/execution/ending.ts',
        find: "{ status: 'pending', reason: null, due: { inMs: 0 }, uncountClaim: true }, { kind: 'released' }",
        put: "{ status: 'pending', reason: null, due: { inMs: 0 } }, { kind: 'released' }",
      },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on sqlite > a step that outlasts the grace' },
  },
  {
    name: 'evidence-dropped',
    wrong: 'the late answer of a fenced holder is thrown away',
    edits: [
      {
        file: 'engine/calls/effect-records.ts',
        find: "codeOf(error) === 'run_cancelled') this.#noteEvidence({ result, at: event.at })",
        put: "codeOf(error) === 'run_cancelled') void 0",
      },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on sqlite > the late answer' },
  },
  {
    name: 'takes-its-own',
    wrong: 'a worker that slept past its leases takes its own runs from itself',
    edits: [
      { file: 'worker/worker.ts', find: '      if (!(await this.#keeper.renewIfLate())) return this.#backOff()\n', put: '' },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on sqlite > a holder whose event loop' },
  },
  {
    name: 'poison-spreads',
    wrong: 'a run that brings its worker down gets its neighbours poisoned with it',
    edits: [{ file: 'worker/worker.ts', find: 'suspectLimit: this.#hasSuspect ? 0 : 1,', put: '' }],
    test: { file: 'test/crash/poison.test.ts', name: 'on sqlite > a run that ends its process' },
  },
  {
    name: 'starts-unrecorded',
    wrong: 'after a death it is not recorded which step was begun',
    edits: [
      {
        file: 'engine/execution/run-journal.ts',
        find: 'return (claim.takenFrom !== null || claim.run.claimsWithoutProgress > 1) && !this.#writes.hasProgress',
        put: 'return claim.run.claimsWithoutProgress > 9',
      },
    ],
    test: { file: 'test/crash/poison.test.ts', name: 'on sqlite > a step that kills its worker before' },
  },
  {
    name: 'unknown-tried-again',
    wrong: 'a write whose outcome is not known is made again under the same lease',
    edits: [
      {
        file: 'engine/writing/committer.ts',
        find: "return code === 'store_unavailable' || code === 'storage_full'",
        put: "return code === 'store_unavailable' || code === 'storage_full' || code === 'outcome_unknown'",
      },
    ],
    test: { file: 'test/crash/store-faults.test.ts', name: 'do not count as deaths' },
  },
  {
    name: 'writes-behind-a-failure',
    wrong: 'what waited behind a failed write of a run is written all the same',
    edits: [
      {
        file: 'engine/writing/committer.ts',
        find: '    for (const leaseId of leases) this.#broken.set(leaseId, error)\n',
        put: '    leases.clear()\n',
      },
    ],
    test: { file: 'src/engine/writing/committer.test.ts', name: 'C4' },
  },
  {
    name: 'state-after-the-end',
    wrong: 'what a function does to its state after the end of its run is seen by the next run',
    // Each of the two would do; without both it shows.
    edits: [
      {
        file: 'engine/execution/ending.ts',
        find: 'return this.#endState ?? this.#run.state.timeline.whole(this.#run.journal.lastSeq)',
        put: 'return this.#run.state.timeline.whole(this.#run.journal.lastSeq)',
      },
      {
        file: 'engine/execution/state-updates.ts',
        find: '    if (phase.hasEnded) return\n    this.migrate()\n',
        put: '    this.migrate()\n',
      },
    ],
    test: { file: 'test/crash/store-faults.test.ts', name: 'is seen by nobody' },
  },
  {
    name: 'postgres-epoch-unchecked',
    wrong: 'Postgres writes a lone step under a lease that was lost',
    edits: [
      {
        file: 'stores/postgres/lone-step.ts',
        find: 'WHERE r.id = p_run AND r.epoch = p_epoch AND r.lease_id = p_lease',
        put: 'WHERE r.id = p_run AND r.epoch >= p_epoch AND p_lease IS NOT NULL',
      },
      {
        file: 'stores/postgres/lone-step.ts',
        find: 'r.thread + 0 = p_thread AND r.epoch = p_epoch AND r.lease_id = p_lease)',
        put: 'r.thread + 0 = p_thread AND r.epoch >= p_epoch AND p_lease IS NOT NULL)',
      },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on postgres > nothing of a stopped holder' },
  },
  {
    name: 'postgres-epoch-by-order',
    wrong: 'Postgres compares a lease by order instead of equality',
    edits: [
      {
        file: 'stores/postgres/apply-judge-sql.ts',
        find: 'r.epoch IS DISTINCT FROM c.epoch OR r.lease_id IS DISTINCT FROM c.lease\n',
        put: 'r.epoch > c.epoch OR r.lease_id IS NULL\n',
      },
    ],
    test: { file: 'test/stores/postgres.test.ts', name: 'S2: ' },
  },
  {
    name: 'redis-epoch-unchecked',
    wrong: 'Redis writes a step under a lease that was lost',
    edits: [
      {
        file: 'stores/redis/scripts/commit/plain-step.ts',
        find: "if r[1] ~= c[4] or r[2] ~= c[5] or r[3] ~= thread or c[5] == '' then return 0 end",
        put: "if r[3] ~= thread or c[5] == '' then return 0 end",
      },
    ],
    test: { file: 'test/crash/zombie.test.ts', name: 'on redis > nothing of a stopped holder' },
  },
  {
    name: 'redis-epoch-by-order',
    wrong: 'Redis compares a lease by order instead of equality',
    edits: [
      {
        file: 'stores/redis/scripts/commit/judge-guard.ts',
        find: "if not mine or c.lease == '' or r.epoch ~= c.epoch or r.lease ~= c.lease then return 'lease_lost' end",
        put: "if not mine or c.lease == '' or tonumber(r.epoch) > tonumber(c.epoch) then return 'lease_lost' end",
      },
    ],
    test: { file: 'test/stores/redis.test.ts', name: 'S2: ' },
  },
  {
    name: 'messages-of-the-first-life-only',
    wrong: 'a run that was taken over tells nobody of its end',
    edits: [
      {
        file: 'engine/writing/outbox.ts',
        find: '|| isInternal(claim.run.workflow)) return []',
        put: '|| isInternal(claim.run.workflow) || claim.takenFrom !== null) return []',
      },
    ],
    test: { file: 'test/behaviour/notifications.test.ts', name: 'on memory > is not lost with a process that dies before' },
  },
  {
    name: 'signal-taken-early',
    wrong: 'a signal is taken out of the inbox before it is recorded',
    edits: [
      {
        file: 'engine/calls/signal.ts',
        find: "  await host.journal.commitResult([host.journal.event('signal_received', call, { data })], { reads: [message.id] })\n",
        put: "  await host.journal.commit([], { reads: [message.id] })\n  await host.journal.commitResult([host.journal.event('signal_received', call, { data })], {})\n",
      },
    ],
    test: { file: 'test/behaviour/waits.test.ts', name: 'on memory > whose record is cut off by a crash' },
  },
  {
    name: 'persisted-without-a-quiet-time',
    wrong: 'a run is persisted as waiting at once, whatever its function awaits, and nobody notices that it was at work',
    edits: [
      { file: 'engine/execution/suspension.ts', find: '    if (!quiet.isOver) return quiet.begin()\n', put: '' },
      {
        file: 'engine/execution/admission.ts',
        find: '    if (this.#run.phase.isSuspended) this.#run.suspension.noticeWork()\n    return never()\n',
        put: '    return never()\n',
      },
    ],
    test: { file: 'test/behaviour/quiet-time.test.ts', name: 'on memory > goes on' },
  },
  {
    name: 'quiet-time-not-kept-for-the-next-holder',
    wrong: 'the longer quiet time of a run that was caught at work is forgotten',
    edits: [{ file: 'engine/execution/inbox-commands.ts', find: '      quiet.raise(this.messages.quietMs)\n', put: '' }],
    test: { file: 'test/behaviour/quiet-time.test.ts', name: 'on memory > for longer than its quiet time is caught' },
  },
  {
    name: 'loser-takes-the-signal',
    wrong: 'a signal goes to the first call that waits for it',
    edits: [{ file: 'engine/waiting/signal-waiters.ts', find: '.findLast(', put: '.find(' }],
    test: { file: 'test/behaviour/signals.test.ts', name: 'on memory > goes to the latest of them: the loser' },
  },
  {
    name: 'undo-of-the-last-result-forgotten',
    wrong: 'a result that becomes durable while the run is cancelled is not undone',
    isRequired: true,
    edits: [
      {
        file: 'engine/execution/run-writes.ts',
        find: '      if (undoable !== undefined && answer.ok)',
        put: '      if (undoable !== undefined && answer.ok && !answer.hasMail)',
      },
    ],
    test: { file: 'test/behaviour/orders.test.ts', name: 'on memory > undoes everything that is on record' },
  },
  {
    name: 'undo-recorded-early',
    wrong: 'an undo is recorded before it has run',
    edits: [
      {
        file: 'engine/undo/undos.ts',
        find: '        await this.#run.calls.inBody(path, () => given.run(value as never, info))\n',
        put: "        await this.#run.journal.commit([this.#run.journal.event('step_undone', null, { scope: path, count, data: { of: seq } })], { hasProgress: true })\n        await this.#run.calls.inBody(path, () => given.run(value as never, info))\n",
      },
      {
        file: 'engine/undo/undos.ts',
        find: '      await this.#run.journal.commit([event], {',
        put: '      if (event === null) await this.#run.journal.commit([event], {',
      },
    ],
    test: { file: 'test/behaviour/undo.test.ts', name: 'on memory > goes on where it was when a worker dies' },
  },
  {
    name: 'silent-child',
    wrong: 'a child that was taken over does not tell its parent of its end',
    edits: [
      {
        file: 'engine/execution/ending.ts',
        find: 'if (parent === undefined || !isTold) return {}',
        put: 'if (parent === undefined || !isTold || this.#run.run.claim.takenFrom !== null) return {}',
      },
    ],
    test: { file: 'test/crash/crash.test.ts', name: 'on sqlite > a run that waits for signals' },
  },
  {
    name: 'crash-pays-the-bill',
    wrong: 'what a run has used before a crash does not count after it',
    edits: [{ file: 'engine/replay/tape-control.ts', find: '    tape.usage = addUsage(tape.usage, used)\n', put: '' }],
    test: { file: 'test/behaviour/budgets.test.ts', name: 'on memory > survives the worker' },
  },
  {
    name: 'newcomers-last',
    wrong: 'a run that is started after a downtime waits until all that is overdue is done',
    edits: [{ file: 'model/claim-order.ts', find: 'one.isNew ? 1 : 0', put: '0' }],
    test: { file: 'test/behaviour/overdue-timers.test.ts', name: 'on memory > fire once each' },
  },
  {
    name: 'outage-fails-the-parent',
    wrong: 'a run fails when the end of its child is out of reach for a moment',
    edits: [
      {
        file: 'engine/calls/child.ts',
        find: 'await askPatiently(host, call, () => readEnd(host.run, run), askAgain)',
        put: 'await host.activity.working(readEnd(host.run, run))',
      },
    ],
    test: { file: 'test/behaviour/waits.test.ts', name: 'on memory > whose end is out of reach' },
  },
  {
    name: 'clock-of-the-claim',
    wrong: 'the clock of a run goes back to its claim when it begins a new tape',
    edits: [{ file: 'engine/execute-run.ts', find: '      now: execution.clock.now(),\n', put: '' }],
    test: { file: 'test/behaviour/waits.test.ts', name: 'on memory > and the time go on' },
  },
  {
    name: 'time-out-before-mail',
    wrong: 'a signal that came in time is beaten by the time-out',
    edits: [{ file: 'engine/calls/signal.ts', find: 'host.clock.now() && !isInboxRead', put: 'host.clock.now() && false' }],
    test: { file: 'test/behaviour/waits.test.ts', name: 'on memory > that came in time counts' },
  },
  {
    name: 'burst-of-ticks',
    wrong: 'ticks that were missed are started without a pause between batches',
    edits: [{ file: 'model/schedule.ts', find: 'notBefore: now + batchPauseMs', put: 'notBefore: now' }],
    test: { file: 'test/behaviour/schedules.test.ts', name: 'on memory > that missed ten thousand ticks' },
  },
  {
    name: 'ticks-of-a-pause',
    wrong: 'a schedule that goes on makes up for the ticks of its pause',
    edits: [{ file: 'model/schedule.ts', find: 'isPaused: false, after: change.at }', put: 'isPaused: false }' }],
    test: { file: 'test/behaviour/schedules.test.ts', name: 'on memory > that is paused starts nothing' },
  },
  {
    name: 'schedule-in-its-own-time',
    wrong: 'what was asked of a schedule does not show before its run has heard of it',
    edits: [
      { file: 'client/read-schedule.ts', find: '.reduce(changeSchedule, recorded)', put: '.reduce(() => recorded, recorded)' },
    ],
    test: { file: 'test/behaviour/schedules.test.ts', name: 'on memory > can be paused, changed and looked at' },
  },
  {
    name: 'scope-entered-again',
    wrong: 'what was recorded in a scope that has a result is still to be asked for',
    edits: [
      {
        file: 'engine/replay/scopes-on-tape.ts',
        find: "if (!area.isEntered) return 'unasked'",
        put: "if (!area.isEntered) return 'required'",
      },
    ],
    test: { file: 'test/behaviour/sections.test.ts', name: 'on memory > is recorded as a whole' },
  },
  {
    name: 'attempt-bound-to-the-last',
    wrong: 'another attempt of a scope has to ask for what earlier ones did',
    edits: [{ file: 'engine/replay/scopes-on-tape.ts', find: "if (seq < area.since) found = 'optional'", put: '' }],
    test: { file: 'test/behaviour/sections.test.ts', name: 'on memory > may take another way on another attempt' },
  },
  {
    name: 'inner-failure-kept',
    wrong: 'another attempt of a scope meets the failures that failed the last one',
    edits: [{ file: 'engine/replay/reopen.ts', find: 'for (const key of failed) reopen(tape, key)', put: '' }],
    test: { file: 'test/behaviour/sections.test.ts', name: 'on memory > that is tried again keeps inner successes' },
  },
  {
    name: 'undo-of-a-scope-forgotten',
    wrong: 'what was done in a scope that was not entered again is not undone',
    edits: [
      {
        file: 'engine/undo/undoable.ts',
        find: 'return !isFailure && isSkip !== true && /^(?:step|effect|child):/.test(key)',
        put: "return !isFailure && isSkip !== true && !key.includes('/') && /^(?:step|effect|child):/.test(key)",
      },
    ],
    test: { file: 'test/behaviour/sections.test.ts', name: 'on memory > that was not entered again is undone' },
  },
  {
    name: 'death-of-a-scope-uncounted',
    wrong: 'a scope that brings its worker down is entered again without a record of the death before',
    edits: [
      {
        file: 'engine/execute-run.ts',
        find: 'journal.mustRecordStarts && hasRunningScope',
        put: 'false && hasRunningScope',
      },
    ],
    test: { file: 'test/behaviour/sections.test.ts', name: 'on memory > whose own function brings its worker down' },
  },
  {
    name: 'waiting-for-nothing',
    wrong: 'a run whose last results set nothing off holds its worker while it sleeps',
    edits: [
      {
        file: 'engine/execution/suspension.ts',
        find: 'if (journal.hasResultsWaiting) return this.considerStopping()',
        put: 'if (journal.hasResultsWaiting) return',
      },
    ],
    test: { file: 'test/behaviour/replay.test.ts', name: 'on memory > frees its worker' },
  },
  {
    name: 'progress-held-for-ever',
    wrong: 'a report that came too soon is not written before the result',
    edits: [{ file: 'engine/execution/run-journal.ts', find: '    output.deferProgressIfDue()\n', put: '' }],
    test: { file: 'test/behaviour/progress.test.ts', name: 'on memory > comes while a step still runs' },
  },
  {
    name: 'lost-claim-given-up',
    wrong: 'runs stay with nobody until their leases are over where the lost answer of a claim can not be looked up at once',
    edits: [
      {
        file: 'stores/postgres/claim.ts',
        find: 'if (!(error instanceof HoldfastError && error.retryable) || performance.now() >= until) throw error',
        put: 'throw error',
      },
    ],
    test: { file: 'test/stores/postgres-connections.test.ts', name: 'what was claimed is looked up' },
  },
  {
    name: 'late-claim-not-renewed',
    wrong: 'a lease of which most was over when the claim was answered runs out before its first renewal',
    edits: [
      {
        file: 'worker/worker.ts',
        find: '      if (performance.now() - claimedAt > this.#engine.leaseMs / 3) void this.#keeper.renewAgain()\n',
        put: '',
      },
    ],
    test: { file: 'test/behaviour/outages.test.ts', name: 'on sqlite > are renewed at once' },
  },
  {
    name: 'own-writes-refuse-the-end',
    wrong: 'a run that writes itself while its order is carried out is read anew for ever',
    edits: [
      {
        file: 'engine/undo/unwinding.ts',
        find: 'this.#isBehind || unwound.journal.lastSeq > (this.#headSeq ?? unwound.journal.lastSeq)',
        put: 'this.#isBehind',
      },
    ],
    test: { file: 'test/behaviour/undo-with-open-step.test.ts', name: 'on memory > fails the run again after a retry' },
  },
  {
    name: 'fork-undoes-original',
    wrong: 'a copy undoes what the original did',
    edits: [
      {
        file: 'engine/undo/undoable.ts',
        find: '  if (seq <= copiedUpTo) return true\n',
        put: '',
      },
    ],
    test: { file: 'test/behaviour/fork.test.ts', name: 'on memory > undoes nothing that was copied' },
  },
  {
    name: 'replace-does-not-cut',
    wrong: 'what came after a replaced call stays in the copy',
    edits: [
      {
        file: 'engine/replay/copy-tape.ts',
        find: 'const upToFirst = all.filter((record) => record.seq < cutBefore(first))\n',
        put: 'const upToFirst = all.filter((record) => record.seq !== first.outcome.seq)\n',
      },
    ],
    test: { file: 'test/behaviour/fork.test.ts', name: 'on memory > with `replace` gives a recorded call another result' },
  },
  {
    name: 'rewind-then-retry',
    wrong: 'a run is retried after its thread was rewound',
    edits: [
      {
        file: 'control/rewind-thread.ts',
        find: "types: ['thread_rewound'] as const",
        put: "types: ['thread_deleted'] as const",
      },
    ],
    test: { file: 'test/behaviour/rewind.test.ts', name: 'on memory > makes retry, rollback and resume of earlier runs' },
  },
]
