// Every public method of E2B's JavaScript SDK, once. What a year-old client lacks is left out.
import assert from 'node:assert'
import * as e2b from 'e2b'

const { AuthenticationError, CommandExitError, NotFoundError, SandboxError, TimeoutError } = e2b
// A paused or deleted sandbox; clients of a year ago raise others for files and commands of one.
const gone = error => error instanceof TimeoutError || error instanceof (e2b.SandboxNotFoundError ?? SandboxError) || error instanceof NotFoundError
const interpreter = await import('@e2b/code-interpreter').catch(() => undefined)
const Sandbox = interpreter ? interpreter.Sandbox : e2b.Sandbox
let failed = 0
async function check(name, call) {
  try {
    await call()
    console.log(JSON.stringify({ check: name, ok: true }))
  } catch (error) {
    failed++
    console.log(JSON.stringify({ check: name, ok: false, error: `${error.name}: ${error.message}\n${error.stack}`.slice(0, 2000) }))
  }
}
async function until(condition) {
  for (let tries = 0; !condition(); tries++) {
    assert(tries < 100)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}
// Methods that a program has called, by class; what is not for programs is left out.
const called = new Set()
const methods = (prototype, name) => {
  const names = []
  for (let owner = prototype; owner && owner !== Object.prototype; owner = Object.getPrototypeOf(owner))
    for (const method of Object.getOwnPropertyNames(owner)) {
      const { value, writable } = Object.getOwnPropertyDescriptor(owner, method)
      if (method === 'constructor' || typeof value !== 'function' || !writable || INTERNAL.has(method)) continue
      names.push(`${name}.${method}`)
      owner[method] = function (...parameters) { called.add(`${name}.${method}`); return value.apply(this, parameters) }
    }
  return names
}
const INTERNAL = new Set('createSandbox forkSandbox connectSandbox resolveOpts resolveApiOpts getFullInfo getJupyterRequestUrl handleRequestError fileUrl runGit runShell getRemoteUrl resolveRemoteName withRemoteCredentials hasUpstream'.split(' '))
const box = await Sandbox.create({ timeoutMs: 300000, metadata: { k: 'a b&c' }, envs: { FOO: 'bar' } })
const every = [
  ...methods(Object.getPrototypeOf(box), 'Sandbox'), ...methods(Object.getPrototypeOf(box.commands), 'commands'),
  ...methods(Object.getPrototypeOf(box.files), 'files'), ...methods(Object.getPrototypeOf(box.pty), 'pty'),
  ...(box.git ? methods(Object.getPrototypeOf(box.git), 'git') : [])]
await check('isRunning', async () => assert(await box.isRunning()))
await check('commands.run', async () => assert.equal((await box.commands.run('echo $FOO; echo e >&2')).stdout, 'bar\n'))
await check('commands.run callbacks', async () => {
  const lines = []
  await box.commands.run('for i in 1 2 3; do echo $i; done', { onStdout: text => lines.push(text) })
  assert.equal(lines.join(''), '1\n2\n3\n')
})
await check('exit code', () => assert.rejects(box.commands.run('exit 3'), error => error instanceof CommandExitError && error.exitCode === 3))
await check('commands background', async () => {
  const handle = await box.commands.run('read a; echo got $a; cat', { background: true, stdin: true })
  await box.commands.sendStdin(handle.pid, 'hi\n')
  assert((await box.commands.list()).some(process => process.pid === handle.pid))
  if (box.commands.closeStdin) {
    await box.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'got hi\n')
  } else assert(await handle.kill())
})
if (box.commands.streamInput) await check('commands.streamInput', async () => {
  const handle = await box.commands.run('wc -c', { background: true, stdin: true })
  await box.commands.streamInput(handle.pid, (async function* () { for (let i = 0; i < 5; i++) yield 'x'.repeat(1000) })())
  await box.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout.trim(), '5000')
})
await check('commands.connect', async () => {
  const handle = await box.commands.run('sleep 0.7; echo late', { background: true })
  await handle.disconnect()
  assert.equal((await (await box.commands.connect(handle.pid)).wait()).stdout, 'late\n')
})
await check('commands.kill', async () => {
  const handle = await box.commands.run('sleep 60', { background: true })
  assert.equal(await box.commands.kill(handle.pid), true)
  assert.equal(await box.commands.kill(999999), false)
})
await check('commands time-out', () => assert.rejects(box.commands.run('sleep 5', { timeoutMs: 400 }), error => error instanceof TimeoutError))
await check('files.write', async () => assert.equal((await box.files.write('a/b.txt', 'hé')).path, '/home/user/a/b.txt'))
await check('files.write blob and stream', async () => {
  await box.files.write('blob', new Blob(['zz']))
  await box.files.write('stream', new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode('yy')); c.close() } }))
  assert.deepEqual([await box.files.read('blob'), await box.files.read('stream')], ['zz', 'yy'])
})
await check('files.read', async () => assert.equal(await box.files.read('a/b.txt'), 'hé'))
await check('files.read bytes', async () => assert.equal((await box.files.read('a/b.txt', { format: 'bytes' })).length, 3))
await check('files.read stream', async () => { let n = 0; for await (const part of await box.files.read('a/b.txt', { format: 'stream' })) n += part.length; assert.equal(n, 3) })
if (box.files.writeFiles) await check('files.writeFiles', async () => assert.equal((await box.files.writeFiles([{ path: 'm/1', data: '1' }, { path: 'm/2', data: '2' }])).length, 2))
await check('files.list', async () => assert((await box.files.list('.', { depth: 2 })).some(entry => entry.name === 'b.txt')))
await check('files.exists getInfo rename makeDir remove', async () => {
  assert(await box.files.exists('a/b.txt'))
  assert(!(await box.files.exists('no')))
  if (box.files.getInfo) assert.equal((await box.files.getInfo('a/b.txt')).name, 'b.txt')
  await box.files.rename('a/b.txt', 'a/c.txt')
  assert(await box.files.makeDir('d'))
  assert(!(await box.files.makeDir('d')))
  await box.files.remove('d')
})
await check('files missing', () => assert.rejects(box.files.read('nope'), error => error instanceof NotFoundError))
await check('files.watchDir', async () => {
  const events = []
  const handle = await box.files.watchDir('a', event => { events.push(event.name) })
  await box.files.write('a/new', '1')
  await until(() => events.includes('new'))
  await handle.stop()
})
await check('downloadUrl', async () => assert.equal(await (await fetch(await box.downloadUrl('a/c.txt', { useSignatureExpiration: 60 }))).text(), 'hé'))
await check('uploadUrl', async () => {
  const form = new FormData()
  form.append('file', new Blob(['up']), 'up')
  assert.equal((await fetch(await box.uploadUrl('up'), { method: 'POST', body: form })).status, 200)
  assert.equal(await box.files.read('up'), 'up')
})
await check('pty', async () => {
  let output = ''
  const handle = await box.pty.create({ cols: 100, rows: 30, onData: data => { output += new TextDecoder().decode(data) } })
  await box.pty.resize(handle.pid, { cols: 101, rows: 31 })
  await box.pty.sendInput(handle.pid, new TextEncoder().encode('stty size; exit\n'))
  await handle.wait().catch(() => undefined)
  assert(/31 101/.test(output), output)
})
await check('setTimeout and getInfo', async () => { await box.setTimeout(600000); if (box.getInfo) assert.equal((await box.getInfo()).state, 'running') })
await check('list', async () => {
  const pages = Sandbox.list({ query: { metadata: { k: 'a b&c' } }, limit: 1 })
  const ids = []
  while (pages.hasNext) ids.push(...(await pages.nextItems()).map(item => item.sandboxId))
  assert(ids.includes(box.sandboxId))
})
if (box.getMetrics) await check('getMetrics', () => box.getMetrics())
await check('getHost', () => assert(box.getHost(3000).startsWith(`3000-${box.sandboxId}.`)))
if (interpreter) {
  await check('runCode', async () => assert.equal((await box.runCode("x = 41\nprint('hi'); x + 1")).text, '42'))
  await check('runCode state', async () => assert.equal((await box.runCode('x')).text, '41'))
  await check('runCode error', async () => assert.equal((await box.runCode('1/0')).error.name, 'ZeroDivisionError'))
  await check('runCode time-out', () => assert.rejects(box.runCode('import time; y=5; time.sleep(9)', { timeoutMs: 500 }), error => error instanceof TimeoutError))
  await check('runCode keeps state', async () => assert.equal((await box.runCode('y')).text, '5'))
  if (box.listCodeContexts) await check('contexts', async () => {
    const context = await box.createCodeContext()
    assert.equal((await box.runCode("'x' in globals()", { context })).text, 'False')
    assert((await box.listCodeContexts()).length >= 2)
    await box.restartCodeContext(context)
    await box.removeCodeContext(context)
  })
}
if (box.fork) await check('fork and snapshot', async () => {
  const forks = await box.fork({ count: 2 })
  assert.equal(await forks[0].files.read('a/c.txt'), 'hé')
  for (const each of forks) await each.kill()
  assert.equal(await Sandbox.deleteSnapshot((await box.createSnapshot()).snapshotId), true)
})
if (box.git) await check('git', async () => {
  const { git } = box
  await git.init('repo', { initialBranch: 'main' })
  await git.configureUser('n', 'n@example.org', { scope: 'local', path: 'repo' })
  await git.setConfig('core.autocrlf', 'false', { scope: 'local', path: 'repo' })
  assert.equal(await git.getConfig('core.autocrlf', { scope: 'local', path: 'repo' }), 'false')
  await box.files.write('repo/file', '1')
  await git.add('repo')
  await git.commit('repo', 'first')
  await git.createBranch('repo', 'other')
  await git.checkoutBranch('repo', 'main')
  assert(JSON.stringify(await git.branches('repo')).includes('other'))
  await git.deleteBranch('repo', 'other', { force: true })
  await box.files.write('repo/file', '2')
  assert.equal((await git.status('repo')).fileStatus.length, 1)
  await git.restore('repo', { paths: ['file'] })
  await git.reset('repo')
  await box.commands.run('git init -q --bare remote.git')
  await git.remoteAdd('repo', 'origin', '/home/user/remote.git')
  assert((await git.remoteGet('repo', 'origin')).includes('remote.git'))
  await git.push('repo', { remote: 'origin', branch: 'main' })
  await git.pull('repo', { remote: 'origin', branch: 'main' })
  await git.clone('/home/user/remote.git', { path: 'clone', branch: 'main' })
  await git.dangerouslyAuthenticate({ username: 'user', password: 'token', host: 'example.org' })
})
if (box.pty.connect) await check('a terminal is joined', async () => {
  const handle = await box.pty.create({ cols: 80, rows: 24, onData: () => {} })
  await handle.disconnect()
  await (await box.pty.connect(handle.pid, { onData: () => {} })).disconnect()
  assert(await box.pty.kill(handle.pid))
})
if (box.updateNetwork) await check('updateNetwork', () => box.updateNetwork({ allowInternetAccess: false }))
if (box.listSnapshots) await check('listSnapshots', () => box.listSnapshots().nextItems())
if (box.getMcpUrl && box.getMcpToken) await check('MCP', async () => { await box.getMcpUrl(); await assert.rejects(async () => box.getMcpToken(), SandboxError) })
await check('tampered URL', async () => assert.equal((await fetch(await box.downloadUrl('a/c.txt') + 'x')).status, 401))
await check('wrong key', () => assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(76) }), AuthenticationError))
await check('pause and connect', async () => {
  await (box.pause ? box.pause() : box.betaPause())
  assert.equal(await box.isRunning(), false)
  await assert.rejects(box.commands.run('true'), gone)
  await assert.rejects(box.files.read('a/c.txt'), gone)
  await (box.connect ? box.connect() : Sandbox.connect(box.sandboxId))
  assert.equal(await (await Sandbox.connect(box.sandboxId)).files.read('a/c.txt'), 'hé')
})
if (box.pause && box.betaPause) await check('betaPause', () => box.betaPause())
await check('kill', async () => { assert.notEqual(await box.kill(), false); assert.equal(await Sandbox.kill(box.sandboxId), false) })
await check('after kill', () => assert.rejects(box.commands.run('true'), gone))
await check('files after kill', () => assert.rejects(box.files.read('a/c.txt'), gone))
await check('connect after kill', () => assert.rejects(Sandbox.connect(box.sandboxId), NotFoundError))
if (box.fork) await check('every public method', () => assert.deepEqual(every.filter(name => !called.has(name)), []))
process.exit(failed ? 1 : 0)
