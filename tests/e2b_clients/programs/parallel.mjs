// Many sandboxes at once, each with a file, a command and its end. Arguments: template, count.
import assert from 'node:assert'
import { Sandbox } from 'e2b'

const [template, count] = [process.argv[2], Number(process.argv[3])]
async function one(number) {
  const box = await Sandbox.create(template, { timeoutMs: 300000 })
  await box.files.write('number', String(number))
  assert.equal((await box.commands.run('cat number')).stdout, String(number))
  assert(await box.kill())
}
await Promise.all([...Array(count).keys()].map(one))
console.log(`${count} sandboxes`)
