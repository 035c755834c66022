import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { measureSlowness, slownessVariable } from './test/patience.ts'
import { SlowFirst } from './test/slow-first.ts'

// The condition makes `holdfast` and its entry points mean the sources, as in tsconfig.json and `node --conditions`. Vitest gives the
// list to Node as well, so `import` must not be in it: a `require` inside a package would get that package's ES modules.
const conditions = ['holdfast-source', 'node']

const slowness = await measureSlowness()

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    environment: 'node',
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'dist/**'],
    pool: 'forks',
    // Tests wait for servers, processes and leases more than they compute.
    maxWorkers: 5,
    sequence: { sequencer: SlowFirst },
    globalSetup: 'test/servers/setup.ts',
    setupFiles: 'test/patient-waits.ts',
    env: {
      NODE_OPTIONS: '--conditions=holdfast-source',
      // For the processes that tests start: what one has compiled the next need not compile again.
      NODE_COMPILE_CACHE: join(tmpdir(), 'holdfast-compile-cache'),
      [slownessVariable]: String(slowness),
    },
    // A file may have no test on the stores that were chosen.
    passWithNoTests: process.env['STORES'] !== undefined,
    // These end what hangs; they measure nothing.
    testTimeout: 60_000 * slowness,
    hookTimeout: 60_000 * slowness,
    expect: { poll: { timeout: 30_000 * slowness, interval: 10 } },
  },
})
