import { defineConfig } from 'vitest/config'

// The condition makes `holdfast` and its entry points mean the sources, as in tsconfig.json and `node --conditions`.
const conditions = ['holdfast-source', 'node']

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    environment: 'node',
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'dist/**'],
    pool: 'forks',
    // For the processes that tests start.
    env: { NODE_OPTIONS: '--conditions=holdfast-source' },
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
})
