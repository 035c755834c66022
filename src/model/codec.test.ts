import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { deflateRawSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCodec, fingerprint } from './codec.ts'
import { HoldfastError } from './errors.ts'

const codec = createCodec()
const roundTrip = (value: unknown) => codec.decode(codec.encode(value))
const refusal = (value: unknown): HoldfastError => {
  try {
    codec.encode(value)
  } catch (error) {
    if (error instanceof HoldfastError) return error
    throw error
  }
  throw new Error('was not refused')
}
const nest = (levels: number, inner: unknown = 1) => {
  let value = inner
  for (let i = 0; i < levels; i++) value = i % 2 ? [value] : { a: value }
  return value
}

describe('exactly', () => {
  it('keeps plain JSON as readable JSON', () => {
    expect(codec.encode({ a: [1, 'x', null, true], b: {} })).toBe('{"a":[1,"x",null,true],"b":{}}')
    expect(codec.encode('x')).toBe('"x"')
  })

  const date = new Date('2026-11-05T08:00:00.123Z')
  it.each<[string, unknown]>([
    ['undefined', undefined],
    ['undefined inside', { a: undefined, b: [undefined, 1, undefined] }],
    [
      'numbers',
      [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0, 0, 2 ** 53 + 2, 5e-324, 1.7976931348623157e308],
    ],
    ['bigint', [0n, -1n, 12345678901234567890123n]],
    ['dates', [date, new Date(8.64e15), new Date(-8.64e15), new Date(0)]],
    [
      'Map',
      new Map<unknown, unknown>([
        ['a', 1],
        [1, new Map([[{ k: 1 }, [2]]])],
        [Number.NaN, undefined],
        [undefined, null],
      ]),
    ],
    ['Set', new Set<unknown>([1, 'a', -0, Number.NaN, undefined, new Set([date])])],
    ['bytes', [new Uint8Array([0, 255, 3]), new Uint8Array(0), Buffer.from('hé'), new Float32Array([1.5, Number.NaN, -0])]],
    ['more bytes', [new Uint8ClampedArray([1]), new Int16Array([-5]), new BigInt64Array([-5n]), new Uint8Array([1, 2]).buffer]],
    ['a view into a larger buffer', new Uint8Array([1, 2, 3, 4, 5]).subarray(1, 3)],
    ['NUL and lone surrogates', { '\0k\ud800': ['a\0b', '\ud800', '\udc00x', '😀'] }],
    ['tags in user data', { $hf: ['date', 'x'], a: { $hf: { $hf: 1 } }, b: '{"$hf":["undefined"]}', c: ['$hf'] }],
    ['a tag with a date in it', { $hf: [date, new Map([['$hf', { $hf: undefined }]])] }],
    ['no prototype', Object.assign(Object.create(null), { a: 1, $hf: 2, n: Object.assign(Object.create(null), { d: date }) })],
    ['prototype keys', JSON.parse('{"__proto__":{"x":1},"constructor":1,"toString":null,"hasOwnProperty":[]}')],
    ['key order', { b: 1, a: 2, 10: 3, 2: 4 }],
  ])('brings back %s', (_, value) => {
    const back = roundTrip(value)
    expect(isDeepStrictEqual(back, value)).toBe(true)
    expect(codec.encode(back)).toEqual(codec.encode(value))
  })

  it('brings back an invalid Date, and -0 as -0', () => {
    expect((roundTrip(new Date(Number.NaN)) as Date).getTime()).toBeNaN()
    expect(Object.is((roundTrip([-0]) as number[])[0], -0)).toBe(true)
  })

  it('never changes a prototype', () => {
    const back = roundTrip(JSON.parse('{"__proto__":{"polluted":{"$hf":1}}}')) as object
    expect(Object.getPrototypeOf(back)).toBe(Object.prototype)
    expect(Object.keys(back)).toEqual(['__proto__'])
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  })

  it('brings back bytes of their own, not a window into others', () => {
    const back = roundTrip(new Uint8Array([1, 2])) as Uint8Array
    expect(Object.getPrototypeOf(back)).toBe(Uint8Array.prototype)
    expect(back.buffer.byteLength).toBe(2)
  })

  it('stores a shared object twice', () => {
    const shared = { a: 1 }
    expect(roundTrip([shared, { shared }])).toEqual([{ a: 1 }, { shared: { a: 1 } }])
  })

  it('tells keys apart that JSON escapes, also after the engine has seen one of them', () => {
    const keys = ['\\', '\n', '"', '\u0001', '\ud800', '\u{1f600}', 'é', '\\n', '\na', 'a\\', 'a\n', '__proto__']
    const objects = keys.map((key) =>
      Object.fromEntries([
        ['x', null],
        [key, 1],
      ]),
    )
    for (const object of objects) JSON.parse(JSON.stringify(object))
    for (const object of [...objects, ...objects.map((plain) => Object.assign(Object.create(null), plain))])
      expect(isDeepStrictEqual(roundTrip(object), object)).toBe(true)
    for (const key of keys) {
      const error = Object.assign(new Error('no'), { x: null }, Object.fromEntries([[key, 1]]))
      expect(Object.keys(roundTrip(error) as object)).toEqual(Object.keys(error))
    }
  })

  it('brings back anything it takes (property)', () => {
    const text = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.constantFrom('$hf', '__proto__', '\ud800', 'constructor', '"$hf":'),
    )
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        fc.oneof(
          text,
          fc.double(),
          fc.integer(),
          fc.bigInt(),
          fc.boolean(),
          fc.constantFrom(null, undefined, -0),
          fc.date({ noInvalidDate: true }),
          fc.uint8Array(),
        ),
        fc.array(tie('value'), { maxLength: 5 }),
        fc.dictionary(text, tie('value'), { maxKeys: 5 }),
        fc.array(fc.tuple(tie('value'), tie('value')), { maxLength: 4 }).map((entries) => new Map(entries)),
        fc.array(tie('value'), { maxLength: 4 }).map((members) => new Set(members)),
      ),
    })).value
    fc.assert(
      fc.property(value, (given) => {
        const payload = codec.encode(given)
        const back = codec.decode(payload)
        expect(codec.encode(back)).toEqual(payload)
        expect(isDeepStrictEqual(back, given)).toBe(true)
      }),
      { numRuns: 2000 },
    )
  })
})

describe('errors', () => {
  it('keep name, message, stack, code, cause and what else can be stored', () => {
    class PaymentError extends Error {
      override name = 'PaymentError'
      code = 'E_PAY'
      details = { at: new Date(5) }
      socket = new (class Socket {})()
      retry = () => {}
    }
    const error = new PaymentError('no', { cause: new TypeError('deep', { cause: 'text' }) })
    const back = roundTrip(error) as PaymentError & { cause: Error }
    expect(back).toBeInstanceOf(Error)
    expect(Object.getPrototypeOf(back)).toBe(Error.prototype)
    expect(back).toMatchObject({ name: 'PaymentError', message: 'no', code: 'E_PAY', details: { at: new Date(5) } })
    expect(back.stack).toBe(error.stack)
    expect(back.cause).toMatchObject({ name: 'TypeError', message: 'deep', cause: 'text' })
    expect(Object.keys(back)).toEqual(['code', 'details'])
    expect(codec.encode(back)).toEqual(codec.encode(roundTrip(back)))
  })

  it('keep the errors of an AggregateError, and take a DOMException', () => {
    const back = roundTrip(new AggregateError([new Error('a'), new RangeError('b')], 'both')) as AggregateError
    expect(back.errors.map((error: Error) => error.name)).toEqual(['Error', 'RangeError'])
    expect(roundTrip(new DOMException('stop', 'AbortError'))).toMatchObject({ name: 'AbortError', message: 'stop' })
  })

  it('can always be recorded: cycles, getters that throw and deep causes are left out', () => {
    const error = new Error('x') as Error & { self?: unknown }
    error.self = error
    error.cause = error
    Object.defineProperty(error, 'bad', {
      enumerable: true,
      get: () => {
        throw new Error('no')
      },
    })
    expect(roundTrip(error)).toMatchObject({ message: 'x' })
    let chain = new Error('0')
    for (let i = 1; i < 500; i++) chain = new Error(String(i), { cause: chain })
    expect(roundTrip(chain)).toMatchObject({ message: '499', cause: { message: '498' } })
  })

  it('never become code: a stored class name is text', () => {
    const back = codec.decode(
      '{"$hf":["error",{"name":"Function","message":"x","props":{"constructor":1,"__proto__":{"a":1}}}]}',
    ) as Error
    expect(Object.getPrototypeOf(back)).toBe(Error.prototype)
    expect(back.name).toBe('Function')
  })
})

describe('or refused', () => {
  const cycle: Record<string, unknown> = { a: { b: [] } }
  ;(cycle['a'] as { b: unknown[] }).b.push(cycle)
  class User {}
  it.each<[string, unknown, string]>([
    ['a function', { items: [1, 2, 3, { fn() {} }] }, '$.items[3].fn'],
    ['a symbol', [Symbol('x')], '$[0]'],
    ['a symbol key', { a: { [Symbol('x')]: 1 } }, '$.a'],
    ['a cycle', cycle, '$.a.b[0]'],
    ['a class instance', { user: new User() }, '$.user'],
    ['a RegExp', { 'a b': /x/ }, '$["a b"]'],
    ['a URL', new URL('http://x'), '$'],
    ['a Promise', [Promise.resolve()], '$[0]'],
    ['a WeakMap', new WeakMap(), '$'],
    ['a boxed string', [new String('x')], '$[0]'],
    ['a hole', { a: Object.assign([], { 0: 1, 2: 3 }) }, '$.a[1]'],
    ['an enormous sparse array', new Array(4e9), '$[0]'],
    ['an array with properties', { m: 'x'.match(/x/) }, '$.m'],
    ['a subclass of Array', [new (class List extends Array {})()], '$[0]'],
    ['a Map with properties', Object.assign(new Map(), { x: 1 }), '$'],
    ['bytes with properties', { b: Object.assign(new Uint8Array(3), { x: 1 }) }, '$.b'],
    ['a hidden property', Object.defineProperty({}, 'x', { value: 1 }), '$'],
    ['toJSON', { a: { toJSON: () => 1 } }, '$.a.toJSON'],
    ['a function in a Map', new Map([['k', new Set([() => 1])]]), '$.get("k").values()[0]'],
    ['a bad Map key', new Map([[User, 1]]), '$.keys()[0]'],
    ['a DataView', new DataView(new ArrayBuffer(1)), '$'],
    ['a forged Date', { d: Object.create(Date.prototype) }, '$.d'],
    [
      'a throwing getter',
      {
        a: {
          get b() {
            throw new Error('no')
          },
        },
      },
      '$.a.b',
    ],
    [
      'a throwing proxy',
      {
        a: [
          new Proxy(
            {},
            {
              ownKeys() {
                throw new Error('no')
              },
            },
          ),
        ],
      },
      '$.a[0]',
    ],
    ['a generator', [(function* () {})()], '$[0]'],
  ])('%s, naming its path', (_, value, path) => {
    const error = refusal(value)
    expect(error.code).toBe('value_not_storable')
    expect(error.details['path']).toBe(path)
    expect(error.message.startsWith(`${path} `)).toBe(true)
  })

  it('refuses a revoked proxy', () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    expect(refusal({ a: proxy })).toMatchObject({ code: 'value_not_storable', details: { path: '$.a' } })
  })

  it('takes one snapshot: every getter is read once', () => {
    let reads = 0
    const back = roundTrip({
      get n() {
        reads += 1
        return reads
      },
    })
    expect([reads, back]).toEqual([1, { n: 1 }])
  })

  it('does not call toJSON of a polluted prototype', () => {
    const prototype = Object.prototype as { toJSON?: unknown }
    Object.defineProperty(prototype, 'toJSON', { value: () => 'gone', configurable: true })
    try {
      expect(refusal({ a: 1 }).code).toBe('value_not_storable')
    } finally {
      delete prototype.toJSON
    }
  })

  it('limits depth, with the same verdict both ways and without overflowing', () => {
    for (const make of [
      nest,
      (n: number) => {
        let v: unknown = 1
        for (let i = 0; i < n; i++) v = new Map([['k', v]])
        return v
      },
    ]) {
      expect(isDeepStrictEqual(roundTrip(make(200)), make(200))).toBe(true)
      expect(refusal(make(201)).code).toBe('value_not_storable')
      expect(() => codec.decode(createCodec({ maxDepth: 500 }).encode(make(201)))).toThrow(
        expect.objectContaining({ code: 'corrupt_record' }),
      )
    }
    expect(roundTrip(nest(200, new Date(0)))).toEqual(nest(200, new Date(0)))
    const deep = nest(1_000_000)
    expect(refusal(deep).code).toBe('value_not_storable')
    expect(() => codec.decode('['.repeat(1_000_000) + ']'.repeat(1_000_000))).toThrow(
      expect.objectContaining({ code: 'corrupt_record' }),
    )
  })

  it('limits size, early', () => {
    const small = createCodec({ maxBytes: 100 })
    expect(small.encode('x'.repeat(98))).toBe(`"${'x'.repeat(98)}"`)
    for (const value of [
      'x'.repeat(99),
      '\0'.repeat(20),
      'é'.repeat(50),
      Array.from({ length: 51 }, () => 1),
      new Uint8Array(80),
      { ['k'.repeat(99)]: 1 },
    ]) {
      expect(() => small.encode(value)).toThrow(
        expect.objectContaining({ code: 'value_too_large', details: expect.objectContaining({ maxBytes: 100 }) }),
      )
    }
    let laughs: unknown = 'ha'
    for (let i = 0; i < 40; i++) laughs = [laughs, laughs]
    expect(() => createCodec({ maxBytes: 100_000 }).encode(laughs)).toThrow(expect.objectContaining({ code: 'value_too_large' }))
  })
})

describe('large values', () => {
  const large = Array.from({ length: 2000 }, (_, i) => ({ i, text: `message number ${i} é \ud800`, at: new Date(i) }))

  it('are compressed when that saves a tenth', () => {
    const payload = codec.encode(large) as Uint8Array
    expect(payload).toBeInstanceOf(Uint8Array)
    expect(Buffer.isBuffer(payload)).toBe(false)
    expect(payload.length).toBeLessThan(JSON.stringify(large).length / 3)
    expect(codec.decode(payload)).toEqual(large)
    expect(codec.decode(Buffer.from(payload))).toEqual(large)
    const noise = Array.from({ length: 30_000 }, () => String.fromCharCode(0x4e00 + Math.floor(Math.random() * 20_000))).join('')
    expect([noise, roundTrip(noise) === noise]).toEqual([noise, true])
    expect(roundTrip(randomBytes(50_000).toString('latin1'))).toBeTypeOf('string')
  })

  it('cannot be bombs', () => {
    const bomb = Buffer.concat([Buffer.from([1]), deflateRawSync(Buffer.alloc(64 * 1024 * 1024, 32))])
    expect(bomb.length).toBeLessThan(100_000)
    expect(() => codec.decode(bomb)).toThrow(expect.objectContaining({ code: 'corrupt_record' }))
  })
})

describe('damage', () => {
  it.each<[string, unknown]>([
    ['nothing', ''],
    ['no JSON', '{"a":'],
    ['no payload', null],
    ['an unknown format', new Uint8Array([9, 1, 2])],
    ['no bytes', new Uint8Array(0)],
    ['an unknown tag', '{"$hf":["RegExp","x"]}'],
    ['a malformed tag', '{"$hf":"date"}'],
    ['a tag with company', '{"$hf":["undefined"],"a":1}'],
    ['a bad number', '{"$hf":["number","toString"]}'],
    ['a bad bigint', '{"$hf":["bigint","0x"]}'],
    ['a bad date', '{"$hf":["date","x"]}'],
    ['a Map with half an entry', '{"$hf":["map",1]}'],
    ['bad bytes', '{"$hf":["bytes","Uint8Array","????"]}'],
    ['bytes of an unknown kind', '{"$hf":["bytes","constructor","AAAA"]}'],
    ['bytes cut off', '{"$hf":["bytes","Float64Array","AAAA"]}'],
    ['a bad error', '{"$hf":["error",[]]}'],
  ])('%s is corrupt_record', (_, payload) => {
    expect(() => codec.decode(payload as string)).toThrow(expect.objectContaining({ code: 'corrupt_record' }))
  })

  it('never throws anything else, whatever byte is flipped', () => {
    const texts = [
      codec.encode({ a: [new Date(5), new Map([['k', 1n]]), new Error('x')], b: { $hf: 1 }, c: new Uint8Array(5) }) as string,
    ]
    const bytes = codec.encode(Array.from({ length: 2000 }, (_, i) => ({ i, d: new Date(i) }))) as Uint8Array
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 1, max: 255 }), fc.boolean(), (at, mask, isText) => {
        const damaged = isText ? Buffer.from(texts[0] as string) : Buffer.from(bytes)
        damaged[at % damaged.length] = (damaged[at % damaged.length] as number) ^ mask
        try {
          codec.decode(isText ? damaged.toString() : damaged)
        } catch (error) {
          expect(error).toMatchObject({ code: 'corrupt_record' })
        }
      }),
      { numRuns: 3000 },
    )
  })
})

describe('fingerprint', () => {
  it('does not see the order of keys, and sees everything else', () => {
    expect(fingerprint({ a: 1, b: { c: 2, d: [3] } })).toBe(fingerprint({ b: { d: [3], c: 2 }, a: 1 }))
    expect(fingerprint(new Map([['a', { x: 1, y: 2 }]]))).toBe(fingerprint(new Map([['a', { y: 2, x: 1 }]])))
    const others = [
      undefined,
      null,
      {},
      { a: undefined },
      { a: null },
      [],
      [undefined],
      0,
      -0,
      '0',
      0n,
      '\ud800',
      '\udc00',
      '\ufffd',
      new Set(),
      new Map(),
      new Date(0),
      'é',
      'e\u0301',
    ]
    const more = [
      new Map([
        [1, 1],
        [2, 2],
      ]),
      new Map([
        [2, 2],
        [1, 1],
      ]),
      new Set([1, 2]),
      new Set([2, 1]),
      { $hf: ['undefined'] },
      Object.create(null),
    ]
    const prints = [...others, ...more].map(fingerprint)
    expect(new Set(prints).size).toBe(prints.length)
    expect(prints[0]).toMatch(/^[\w-]{43}$/)
    expect(() => fingerprint({ f() {} })).toThrow(expect.objectContaining({ code: 'value_not_storable' }))
  })
})
