"""Code contexts at full-isolation behind a real daemon: state, charts, interrupts, forks, and the daemon's death.

One daemon and one sandbox of the SDK; each test has contexts of its own.
"""

import threading
from collections.abc import Iterator

import pytest

from paddock import Conflict, Paddock, Sandbox
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        yield created


@pytest.fixture(scope="module")
def sandbox(daemon: RunningDaemon) -> Iterator[Sandbox]:
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandboxes.create(memory="512Mi", cpu=2) as created:
        yield created


def test_variables_stay_between_two_calls(sandbox: Sandbox) -> None:
    first = sandbox.run_code("x = 6\nprint('set')")
    assert (first.stdout, first.stateful, first.exit_code) == ("set\n", True, 0)
    second = sandbox.run_code("x * 7")
    assert (second.text, second.count) == ("42", 2)
    fresh = sandbox.run_code("x", fresh=True)
    assert (fresh.exit_code, fresh.stateful) == (1, False)
    failed = sandbox.run_code("1 / 0", check=False)
    assert failed.error is not None
    assert (failed.error.name, failed.exit_code) == ("ZeroDivisionError", 1)
    assert "ZeroDivisionError" in failed.stderr
    shell = [sandbox.run_code(line, "bash").stdout for line in ("A=5; cd /tmp", "echo $A $PWD")]
    assert shell[1] == "5 /tmp\n"


def test_pictures_and_markup_come_by_their_types(sandbox: Sandbox) -> None:
    code = sandbox.run_code(
        "class Chart:\n"
        "    def _repr_png_(self): return b'\\x89PNG picture'\n"
        "    def _repr_html_(self): return '<script>x</script>'\n"
        "display(Chart())\n"
        "Chart()"
    )
    assert [result.main for result in code.results] == [False, True]
    assert code.results[1].png == b"\x89PNG picture"
    markup = code.results[1]._repr_html_()
    assert markup is not None
    assert markup.startswith('<iframe sandbox=""')
    assert "<script>" not in markup


def test_commands_share_the_variables(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    sandbox.run_code("typed = 41")
    done = daemon.paddock("repl", sandbox.name, stdin="print('hi')\ntyped + 1")
    assert (done.returncode, done.stdout) == (0, "hi\n42\n")
    failed = daemon.paddock("exec", "--context", "python", sandbox.name, "--", "1 / 0", check=False)
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr
    assert daemon.paddock("exec", "--context", "bash", sandbox.name, "--", "exit 7", check=False).returncode == 7


def test_interrupt_of_an_endless_loop_keeps_state(sandbox: Sandbox) -> None:
    context = sandbox.contexts.create("python", name="loop")
    context.run("kept = 1")
    running_cell = threading.Event()
    timer = threading.Thread(target=lambda: (running_cell.wait(30), context.interrupt()))
    timer.start()
    output = context.run("print('begun', flush=True)\nwhile True: pass", on_stdout=lambda _: running_cell.set())
    timer.join()
    assert (output.exit_code, output.state_lost) == (130, False)
    assert output.error is not None
    assert output.error.name == "KeyboardInterrupt"
    assert context.run("kept").text == "1"
    late = context.run("import time; time.sleep(60)", timeout=0.5)
    assert (late.timed_out, late.exit_code, context.run("kept").text) == (True, 124, "1")


def test_fork_has_a_copy_of_everything(sandbox: Sandbox) -> None:
    context = sandbox.contexts.create("python", name="origin")
    context.run("data = [1]")
    copy = context.fork("branch")
    copy.run("data.append(2)")
    assert (context.run("data").text, copy.run("data").text) == ("[1]", "[1, 2]")
    context.run("handle = open('/tmp/open.txt', 'w')")
    with pytest.raises(Conflict, match=r"a file is open for writing \(/tmp/open.txt\)"):
        context.fork()
    context.delete()
    assert copy.run("data").text == "[1, 2]"
    copy.delete()


def test_an_interpreter_that_ends_is_begun_anew(sandbox: Sandbox) -> None:
    context = sandbox.contexts.create("python", name="mortal")
    context.run("import subprocess; child = subprocess.Popen(['sleep', '12345'])")
    assert context.refresh().facts["processes"] == 1
    died = context.run("import os; os._exit(5)")
    assert died.error is not None
    assert (died.error.name, died.exit_code, died.state_lost) == ("ContextDied", 5, True)
    after = context.run("'child' in globals()")
    assert (after.text, after.lost) == ("False", "the interpreter ended with exit code 5")
    processes = "cat /proc/[1-9]*/cmdline | tr '\\0' ' '"
    wait_for("what it left has ended", lambda: "sleep 12345" not in sandbox.run(processes).stdout)


def test_context_outlives_a_killed_daemon(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    sandbox.run_code("survivor = 'here'")
    daemon.kill()
    daemon.start_again()
    wait_for("it has seen the engine", daemon.is_ready)
    assert sandbox.run_code("survivor").text == "'here'"


def test_a_frozen_sandbox_keeps_its_variables(sandbox: Sandbox) -> None:
    sandbox.run_code("frozen = 'kept'")
    sandbox.pause()
    assert "python" in {context.name for context in sandbox.contexts.list()}
    with pytest.raises(Conflict, match="keeps its processes and code contexts"):
        sandbox.run_code("frozen")
    sandbox.resume()
    assert sandbox.run_code("frozen").text == "'kept'"


def test_a_copied_sandbox_has_files_without_variables(daemon: RunningDaemon, sandbox: Sandbox) -> None:
    sandbox.run_code("variable = 1; open('file', 'w').write('kept')")
    wait_for("its status lists it", lambda: sandbox.refresh().object["status"].get("contexts"))
    copied = daemon.paddock("fork", sandbox.name, "--name-prefix", "copy")
    assert "variables of its code contexts (" in copied.stderr
    copy = daemon.paddock("exec", "--context", "python", "copy-1", "--", "open('file').read(), 'variable' in globals()")
    assert copy.stdout == "('kept', False)\n"
    daemon.paddock("delete", "sandbox", "copy-1")


def test_status_lists_contexts_and_suspending_ends_them(sandbox: Sandbox) -> None:
    names = {context.name for context in sandbox.contexts.list()}
    assert "python" in names
    sandbox.run_code("gone = 1")
    sandbox.contexts.create("bash", name="large").run("x=$(printf '%60000000s' '')", check=True)
    facts = {fact["name"]: fact["value"] for fact in sandbox.why()["seen"]}
    assert facts["memory of contexts"].startswith("`large` (bash) uses the most: ")
    names.add("large")

    def listed() -> set[str]:
        return {context["name"] for context in sandbox.refresh().object["status"].get("contexts", ())}

    wait_for("its status lists them", lambda: listed() == names)
    sandbox.suspend()
    suspended = sandbox.condition("Suspended")
    assert suspended is not None
    assert f"that ended {len(names)} code contexts" in suspended["message"]
    assert sandbox.contexts.list() == []
    sandbox.resume()
    assert sandbox.run_code("'gone' in globals()").text == "False"


POOL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: loaded}
spec:
  image: paddock/python:1
  agent: {contexts: [{language: python, imports: [colorsys]}]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: loaded}
spec: {templateRef: {name: loaded}, warmReplicas: 1, shutdownGracePeriodSeconds: 0}
"""


def test_members_of_a_pool_have_their_modules(daemon: RunningDaemon) -> None:
    daemon.apply(POOL)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/loaded")
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandboxes.create(pool="loaded") as claimed:
        context = claimed.contexts.get("python")
        assert (context.facts["language"], claimed.object["status"]["launchType"]) == ("python", "Warm")
        assert claimed.run_code("colorsys.__name__").text == "'colorsys'"
    daemon.paddock("delete", "sandboxpool/loaded")


def test_without_an_agent_each_interpreter_is_fresh(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandboxes.create(agent=False) as plain:
        fresh = plain.run_code("print(6 * 7)")
        assert (fresh.text, fresh.stateful) == ("42", False)
        with pytest.raises(Conflict, match=r"add `agent: \{\}` to its template"):
            plain.contexts.create("python")


BOMB = """
import os
pieces = []
while True:
    try:
        os.fork()
        pieces.append(bytearray(1 << 20))
    except (OSError, MemoryError):
        pass
"""


def test_code_runs_after_a_fork_bomb_without_memory(daemon: RunningDaemon) -> None:
    with Paddock(f"unix://{daemon.socket}") as paddock, paddock.sandboxes.create(memory="128Mi", pids=40) as small:
        assert small.run_code("x = 1\nx").text == "1"
        died = small.run_code(BOMB, timeout=5)
        assert died.error is not None
        after = small.run_code("'x' in globals()")
        assert (after.text, bool(after.lost)) == ("False", True)
        assert small.exec(["echo", "alive"]).stdout == "alive\n"
