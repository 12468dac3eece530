"""The programs of E2B's own README files, Python."""

from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

with Sandbox.create() as sandbox:
    result = sandbox.commands.run('echo "Hello from E2B!"')
    print(result.stdout)
    assert result.stdout == "Hello from E2B!\n"

with Interpreter.create() as sandbox:
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("x+=1; x")
    print(execution.text)
    assert execution.text == "2"
