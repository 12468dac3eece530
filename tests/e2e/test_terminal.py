"""`paddock exec -it` and `paddock shell` at a terminal, driven by pexpect through a pty."""

import os
import signal
import sys
from collections.abc import Iterator

import pexpect
import pytest

from tests.daemon import ROOT, RunningDaemon, docker, running, wait_for

pytestmark = pytest.mark.docker
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec:
  template: {image: "%s", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("daemon")) as created:
        created.apply(SANDBOX % ("tiny", "paddock/test-tiny:1"))
        created.apply(SANDBOX % ("debian", "paddock/base:1"))
        created.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/tiny", "sandbox/debian")
        yield created


def at_terminal(daemon: RunningDaemon, *words: str) -> pexpect.spawn:
    environment = {**daemon.environment, "TERM": "xterm"}
    command = ["-m", "controller", *words]
    return pexpect.spawn(sys.executable, command, cwd=str(ROOT), env=environment, timeout=60, dimensions=(24, 80))


def test_a_shell_with_keys_sizes_and_an_exit_code(daemon: RunningDaemon) -> None:
    terminal = at_terminal(daemon, "shell", "tiny")
    terminal.expect(r"\$ ")
    # The engine takes a size only of a command that has begun: the prompt may come before it.
    terminal.sendline("until [ \"$(stty size 2>&1)\" = '24 80' ]; do :; done; echo si''zed $TERM")
    terminal.expect("sized xterm")
    terminal.setwinsize(41, 123)
    terminal.sendline("until [ \"$(stty size)\" = '41 123' ]; do :; done; echo resi''zed")
    terminal.expect("resized")
    # The program in front says so itself: a shell that is just about to begin one keeps the key from it.
    terminal.sendline("sh -c \"echo sle''eping; sleep 1000\"")
    terminal.expect("sleeping")
    terminal.sendintr()
    terminal.sendline("echo ba''ck; exit 7")
    terminal.expect("back")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert (terminal.exitstatus, terminal.signalstatus) == (7, None)


def test_bash_is_preferred(daemon: RunningDaemon) -> None:
    terminal = at_terminal(daemon, "shell", "debian")
    terminal.sendline("echo is $BASH")
    terminal.expect("is /.*bash\r\n.*\\$ ")  # bash takes a ^D that comes before its prompt for a NUL
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_restored_on_any_exit(daemon: RunningDaemon, number: signal.Signals) -> None:
    """Run under a shell, which keeps the terminal open after the command."""
    terminal = pexpect.spawn("/bin/sh", env={**daemon.environment, "PS1": "host> "}, cwd=str(ROOT), timeout=60)
    terminal.expect("host> ")
    terminal.sendline(f"stty -g; {sys.executable} -m controller exec -it tiny -- sh")
    terminal.expect("([0-9a-f]+:[0-9a-f:]+)\r\n")
    before = terminal.match[1]
    terminal.expect(r"\$ ")
    terminal.sendline("echo $$ is in; sleep 4242")
    terminal.expect("is in")
    (client,) = children(terminal.pid)
    os.kill(client, number)
    terminal.expect("host> ")
    terminal.sendline("stty -g")
    terminal.expect("([0-9a-f]+:[0-9a-f:]+)\r\n")
    assert terminal.match[1] == before
    wait_for("the command's end", lambda: "sleep 4242" not in docker("top", container(daemon, "tiny")))
    terminal.close(force=True)


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(name) for name in file.read().split()]


def container(daemon: RunningDaemon, name: str) -> str:
    return str(daemon.get(name)["status"]["instanceRef"]["name"])


def test_without_a_terminal_signals_are_passed_on(daemon: RunningDaemon) -> None:
    script = "trap 'echo got it; exit 5' TERM; echo begun; while :; do sleep 0.1; done"
    terminal = at_terminal(daemon, "exec", "tiny", "--", "sh", "-c", script)
    terminal.expect("begun")
    terminal.kill(signal.SIGTERM)
    terminal.expect("got it")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 5


def test_a_client_that_is_killed_ends_the_command(daemon: RunningDaemon) -> None:
    terminal = at_terminal(daemon, "exec", "tiny", "--", "sh", "-c", "echo begun; sleep 4343")
    terminal.expect("begun")
    terminal.kill(signal.SIGKILL)
    wait_for("the command's end", lambda: "sleep 4343" not in docker("top", container(daemon, "tiny")))
    terminal.close(force=True)


def test_timeout_is_reported_with_exit_code_124(daemon: RunningDaemon) -> None:
    done = daemon.paddock("exec", "tiny", "--timeout=300ms", "--", "sleep", "1000", check=False)
    assert (done.returncode, done.stdout) == (124, "")
    assert "timed out and was killed" in done.stderr


def test_an_unkillable_command_ends_the_sandbox(daemon: RunningDaemon) -> None:
    daemon.apply(SANDBOX % ("escapes", "paddock/test-tiny:1"))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/escapes")
    script = "env -i setsid sleep 4444 & sleep 1000"
    done = daemon.paddock("exec", "escapes", "--timeout=3s", "--", "sh", "-c", script, check=False)
    assert done.returncode == 124
    wait_for("its restart", lambda: daemon.get("escapes")["status"].get("restartCount") == 1, 60)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/escapes")
    assert "sleep 4444" not in docker("top", container(daemon, "escapes"))
    assert "ExecEscaped" in daemon.paddock("events", "sandbox/escapes").stdout
    assert daemon.get("escapes")["status"]["lastTermination"]["reason"] == "Killed"
