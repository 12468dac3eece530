// Kernel of a JavaScript context: `node javascript.js DESCRIPTOR`, JSON lines on that socket. V8's inspector evaluates code in
// replMode (const again, top-level await), called inside vm's breakOnSigint: SIGINT ends a busy loop, and a handler abandons
// a promise that is only awaited.
'use strict'
const vm = require('vm'), fs = require('fs'), util = require('util'), net = require('net'), path = require('path')
const { Session } = require('inspector')
const { createRequire } = require('module')
const { pathToFileURL } = require('url')
const descriptor = Number(process.argv[2])
const MOST_RESULT = 4 * 1024 * 1024, MOST_PLAIN = 1024 * 1024, PIECE = 64 * 1024, MOST_TRACEBACK = 64 * 1024
let execution = null, abandon = null, count = 0, queue = Promise.resolve(), pending = []

const write = event => {
  let bytes = Buffer.from(JSON.stringify(event) + '\n')
  while (bytes.length) {
    try { bytes = bytes.subarray(fs.writeSync(descriptor, bytes)) } catch (error) { if (error.code !== 'EAGAIN') throw error }
  }
}
const send = event => write({ id: execution, ...event })
const text = (type, value) => {
  if (execution === null) { // of a timer between two cells
    pending.push([type, value.slice(-PIECE)])
    if (pending.length > 64) pending.shift()
    return
  }
  for (let at = 0; at < value.length; at += PIECE) send({ type, text: value.slice(at, at + PIECE) })
}
for (const type of ['stdout', 'stderr']) {
  process[type].write = (chunk, encoding, callback) => {
    text(type, typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString())
    const done = typeof encoding === 'function' ? encoding : callback
    if (done) process.nextTick(done)
    return true
  }
}
const cut = (value, most) => value.length <= most ? value
  : `${value.slice(0, most / 2)}\n[... ${value.length - most} characters left out ...]\n${value.slice(-most / 2)}`
const inspect = value => { try { return cut(util.inspect(value, { maxArrayLength: 1000, maxStringLength: MOST_PLAIN }), MOST_PLAIN) } catch (error) { return `<its inspection raised ${error && error.name}>` } }

const local = createRequire(path.join(process.cwd(), 'cell.js'))
const load = async name => {
  if (name.startsWith('node:') || local('module').builtinModules.includes(name)) return import(name)
  let file
  try { file = local.resolve(name) } catch (error) { file = path.resolve(process.cwd(), name) }
  return import(pathToFileURL(file))
}
Object.assign(globalThis, { require: local, module, exports, __paddock_import: load })
process.on('uncaughtException', error => text('stderr', String((error && error.stack) || error) + '\n'))
process.on('unhandledRejection', error => text('stderr', String((error && error.stack) || error) + '\n'))
process.on('SIGINT', () => { if (abandon) abandon({ stopped: true }) })

const MIMES = ['text/html', 'text/markdown', 'image/svg+xml', 'image/png', 'image/jpeg', 'application/json', 'text/latex']
const result = (value, main) => {
  const data = { 'text/plain': inspect(value) }
  if (value && typeof value === 'object' && typeof value[Symbol.for('Jupyter.display')] === 'function') {
    try {
      const offered = value[Symbol.for('Jupyter.display')]()
      for (const mime of MIMES) if (mime in offered) data[mime] = Buffer.isBuffer(offered[mime]) ? offered[mime].toString('base64') : offered[mime]
    } catch (error) { send({ type: 'notice', text: 'left out of a result: its display raised ' + (error && error.name) }) }
  }
  for (const mime of Object.keys(data)) {
    let size
    try { size = JSON.stringify(data[mime]).length } catch (error) { size = Infinity }
    if (!(size <= MOST_RESULT / 4)) { delete data[mime]; send({ type: 'notice', text: `left out of a result: ${mime} is too large` }) }
  }
  send({ type: 'result', main, update: false, data })
}
globalThis.display = value => result(value, false)

const session = new Session(); session.connect()
let go
Object.defineProperty(globalThis, '__kernel', { value: { go: () => go() } })
const guard = new vm.Script('__kernel.go()')
// `import x from 'y'` is no expression: it becomes an awaited import, and `import('y')` one that the loader knows.
const STATIC = /^([ \t]*)import\s+(?:(\w+)\s*,?\s*)?(?:\{([^}]*)\}|\*\s*as\s+(\w+))?\s*from\s*(['"][^'"\n]+['"])[ \t]*(?=;|$)/gm
const rewrite = code => code
  .replace(STATIC, (_, space, name, names, all, from) => {
    const parts = []
    if (all) parts.push(`const ${all} = await __paddock_import(${from})`)
    if (name) parts.push(`const ${name} = (await __paddock_import(${from})).default`)
    if (names) parts.push(`const {${names.replace(/\s+as\s+/g, ': ')}} = await __paddock_import(${from})`)
    return space + parts.join('; ')
  })
  .replace(/(^|[^\w.$'"`])import\(/g, '$1__paddock_import(')
const evaluate = code => new Promise(resolve => {
  abandon = resolve
  const expression = rewrite(code) + `\n//# sourceURL=cell${++count}.js`
  go = () => session.post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' }, (error, value) => resolve(error ? { stopped: true } : value))
  try { guard.runInThisContext({ breakOnSigint: true }) } catch (error) { resolve({ stopped: true }) }
})
const valueOf = remote => {
  if (!remote.objectId) {
    if (!remote.unserializableValue) return remote.value
    const number = remote.unserializableValue
    return number.endsWith('n') ? BigInt(number.slice(0, -1)) : number === '-0' ? -0 : Number(number)
  }
  const place = {}
  globalThis.__place = place
  session.post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: 'function(){globalThis.__place.value=this}' })
  delete globalThis.__place
  return place.value
}
const failure = (name, value, traceback) => send({ type: 'error', name: cut(name, 256), value: cut(value, 8192), traceback: cut(traceback, MOST_TRACEBACK) })
async function cell (request) {
  execution = request.id
  for (const [type, value] of pending.splice(0)) text(type, value)
  const before = {}
  for (const [name, value] of Object.entries(request.env || {})) { before[name] = process.env[name]; process.env[name] = value }
  const answer = await evaluate(request.code)
  abandon = null
  if (answer.stopped || (answer.exceptionDetails && !answer.exceptionDetails.exception)) failure('KeyboardInterrupt', 'execution interrupted', '')
  else if (answer.exceptionDetails) {
    const error = valueOf(answer.exceptionDetails.exception), is = util.types.isNativeError(error) || error instanceof Error
    const stack = is ? String(error.stack).split('\n').filter(line => !/node:internal|javascript\.js|__kernel|evalmachine/.test(line)).join('\n') : ''
    failure(is ? String(error.name) : 'Error', is ? String(error.message) : inspect(error), stack)
  } else if (answer.result.type !== 'undefined') {
    try { result(answer.result.type === 'symbol' ? Symbol(answer.result.description.slice(7, -1)) : valueOf(answer.result), true) } catch (error) { failure('Error', String(error), '') }
  }
  post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }) // else the inspector would keep each result for good
  for (const [name, value] of Object.entries(before)) { if (value === undefined) delete process.env[name]; else process.env[name] = value }
  send({ type: 'done', count })
  execution = null
}
// How the name at the code's end may go on: of the scope, or of what is before its last dot, unless reading that does something.
const post = (method, parameters) => { let answer = {}; session.post(method, parameters, (error, value) => { answer = error ? {} : value }); return answer }
// An index is no name, and there may be 10^8 of them. Only newer inspectors list an array's names without its indices.
const LISTS_NAMES = parseInt(process.versions.v8) >= 10, GROUP = { objectGroup: 'completion' }
const hasIndices = object => ArrayBuffer.isView(object) || ((Array.isArray(object) || util.types.isStringObject(object)) && object.length > 0)
const namesOf = remote => {
  let names = []
  for (let object = valueOf(remote); object && !util.types.isProxy(object); object = Object.getPrototypeOf(object)) {
    if (!hasIndices(object)) names = names.concat(Object.getOwnPropertyNames(object))
  }
  if (LISTS_NAMES && /array/.test(remote.subtype)) {
    const { result = [] } = post('Runtime.getProperties', { objectId: remote.objectId, ownProperties: true, nonIndexedPropertiesOnly: true })
    names = names.concat(result.map(property => property.name))
  }
  return names
}
function complete (request) {
  const [, path, prefix] = /((?:[A-Za-z_$][\w$]*\.)*)([A-Za-z_$][\w$]*)?$/.exec(request.code)
  let names = []
  if (path) {
    const { result: owner, exceptionDetails } = post('Runtime.evaluate', { expression: path.slice(0, -1), throwOnSideEffect: true, silent: true, timeout: 500, ...GROUP })
    const remote = owner && !exceptionDetails && (owner.objectId ? owner : owner.type === 'string' && post('Runtime.evaluate', { expression: 'Object("")', ...GROUP }).result)
    if (remote) names = namesOf(remote)
    post('Runtime.releaseObjectGroup', GROUP)
  } else names = [...(post('Runtime.globalLexicalScopeNames', {}).names || []), ...Object.getOwnPropertyNames(globalThis)]
  const matches = [...new Set(names)].filter(name => name.startsWith(prefix || '') && /^[A-Za-z_$][\w$]*$/.test(name) && (prefix || name[0] !== '_')).sort()
  write({ id: request.id, type: 'completions', replaced: (prefix || '').length, matches: matches.slice(0, 200) })
  write({ id: request.id, type: 'done', count })
}
let buffer = Buffer.alloc(0)
new net.Socket({ fd: descriptor, readable: true, writable: false })
  .on('data', data => {
    buffer = Buffer.concat([buffer, data])
    for (let end; (end = buffer.indexOf(10)) >= 0;) {
      const request = JSON.parse(buffer.subarray(0, end).toString())
      buffer = buffer.subarray(end + 1)
      queue = queue.then(() => request.op === 'complete' ? complete(request) : cell(request))
    }
  })
  .on('end', () => process.exit(0))
  .on('error', () => process.exit(0))
write({ id: null, type: 'ready', pid: process.pid, engine: 'node', version: process.versions.node, reason: '' })
