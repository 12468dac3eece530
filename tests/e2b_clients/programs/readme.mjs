// The programs of E2B's own README files, JavaScript.
import assert from 'node:assert'
import { Sandbox } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create()
const result = await sandbox.commands.run('echo "Hello from E2B!"')
console.log(result.stdout)
assert.equal(result.stdout, 'Hello from E2B!\n')
await sandbox.kill()

const interpreter = await Interpreter.create()
await interpreter.runCode('x = 1')
const execution = await interpreter.runCode('x+=1; x')
console.log(execution.text)
assert.equal(execution.text, '2')
await interpreter.kill()
