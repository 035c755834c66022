import type { AnyWorkflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { agent } from './agent.ts'
import { allFeatures, reader } from './all-features.ts'
import { allWrites } from './all-writes.ts'
import { crashWindowWorkflows } from './crash-window-workflows.ts'
import { deadlyWorkflows } from './deadly-workflows.ts'
import { mixedWork } from './mixed-work.ts'
import { notifiesOthers } from './notifies-others.ts'
import { recordedCallsOf } from './recorded-calls.ts'
import { remembers } from './remembers.ts'
import { savesArtifacts } from './saves-artifacts.ts'
import { oneStep, shortSteps, untilFileExists } from './simple-workflows.ts'
import { waitsForOthers } from './waits-for-others.ts'

/** All workflows of the crash tests, with the services of one process. */
export function workflowsOf(services: TestServices): Record<string, AnyWorkflow> {
  const calls = recordedCallsOf(services)
  const list = [
    allFeatures(services, calls),
    reader(calls),
    ...crashWindowWorkflows(services, calls),
    allWrites(services, calls),
    untilFileExists(calls),
    ...deadlyWorkflows(calls),
    shortSteps(calls),
    oneStep(calls),
    mixedWork(services, calls),
    ...waitsForOthers(services, calls),
    notifiesOthers(calls),
    remembers(calls),
    savesArtifacts(calls),
    agent(services, calls),
  ]
  return Object.fromEntries(list.map((one) => [one.name, one]))
}
