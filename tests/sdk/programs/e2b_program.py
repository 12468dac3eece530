"""A program written for E2B, on Paddock; then the facade's names and arguments are looked up in the real package."""

import contextlib
import inspect

import e2b

from paddock import e2b as ours
from paddock.e2b import CommandExitException, NotFoundException, Sandbox

with Sandbox.create(timeout=600, envs={"A": "1"}, metadata={"app": "ported"}) as sandbox:
    result = sandbox.commands.run("echo $A; echo err >&2", cwd="/tmp")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("1\n", "err\n", 0, None)
    code = 0
    try:
        sandbox.commands.run("exit 3")
    except CommandExitException as error:
        code = error.exit_code
    assert code == 3
    seen: list[str] = []
    sandbox.commands.run("echo streamed", on_stdout=seen.append)
    assert seen == ["streamed\n"]
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    handle.send_stdin("it\n")
    assert handle.wait().stdout == "got it\n"
    sandbox.files.write("/tmp/deep/er/a.txt", "hello")
    assert sandbox.files.read("/tmp/deep/er/a.txt") == "hello"
    assert sandbox.files.read("/tmp/deep/er/a.txt", format="bytes") == bytearray(b"hello")
    assert [(each.name, each.type) for each in sandbox.files.list("/tmp/deep")] == [("er", "dir")]
    assert sandbox.files.rename("/tmp/deep/er/a.txt", "/tmp/b.txt").name == "b.txt"
    assert (sandbox.files.exists("/tmp/b.txt"), sandbox.files.make_dir("/tmp/deep")) == (True, False)
    sandbox.files.remove("/tmp/deep")
    with contextlib.suppress(NotFoundException):
        sandbox.files.read("/tmp/none")
    execution = sandbox.run_code("print(6 * 7)")
    assert (execution.text, execution.error) == ("42", None)
    failed = sandbox.run_code("1 / 0")
    assert failed.error is not None
    assert failed.error.name == "ZeroDivisionError"
    assert Sandbox.connect(sandbox.sandbox_id).is_running()
    assert sandbox.get_host(8000).startswith("127.0.0.1:")
assert not sandbox.is_running()

PAIRS = [
    (ours.Sandbox, e2b.Sandbox),
    (ours.Commands, e2b.sandbox_sync.commands.command.Commands),
    (ours.Filesystem, e2b.sandbox_sync.filesystem.filesystem.Filesystem),
    (ours.CommandHandle, e2b.CommandHandle),
]
OURS_ALONE = {"paddock"}  # the client to use
OF_THE_CODE_INTERPRETER = {"run_code"}  # another package of theirs
for own, theirs in PAIRS:
    for name, method in inspect.getmembers(own, callable):
        if name.startswith("_") or name in OF_THE_CODE_INTERPRETER:
            continue
        real = getattr(theirs, name)
        known = set(inspect.signature(real).parameters)
        asked = set(inspect.signature(method).parameters) - OURS_ALONE
        if not {"opts", "kwargs"} & known:
            assert asked <= known, (own.__name__, name, asked - known)
