"""The agent as a sandbox's main process: its child, signals, exit codes, settings, and rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.conftest import ENVIRONMENT, PROGRAM, Running, Start, finished


def test_health_says_who_may_call(start: Start) -> None:
    assert start().request("GET", "/healthz")[1]["callers"] == "Anyone"


def test_the_commands_exit_code_and_output_are_its_own(start: Start) -> None:
    agent = start("sh", "-c", "echo out; exit 7")
    out, _ = agent.process.communicate(timeout=30)
    assert out == "out\n"
    assert agent.process.returncode == 7


def test_signals_reach_the_command(start: Start) -> None:
    agent = start(
        "sh", "-c", "trap 'echo term; exit 3' TERM; trap 'echo usr1' USR1; echo up; while :; do sleep 0.02; done"
    )
    assert agent.process.stdout is not None
    assert agent.process.stdout.readline() == "up\n"
    agent.process.send_signal(10)
    assert agent.process.stdout.readline() == "usr1\n"
    assert agent.stop() == 3


def test_a_killed_command_shows_its_signal(start: Start) -> None:
    agent = start("sh", "-c", "kill -KILL $$")
    assert agent.process.wait(30) == 137


def test_without_a_command_it_runs_until_told(agent: Running) -> None:
    assert agent.tool("exec", command="true")["success"]
    assert agent.stop() == 0


def test_its_end_ends_every_exec(agent: Running) -> None:
    mark = "97.0" + str(agent.port)
    agent.tool("exec", command=f"setsid sleep {mark}", background=True)
    agent.process.kill()
    finished(lambda: subprocess.run(["pgrep", "-f", mark], stdout=subprocess.DEVNULL).returncode == 1)


def alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-I", "-S", str(PROGRAM), *arguments]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=30, check=False)


def test_bad_settings_are_told_at_once() -> None:
    done = alone("--settings", '{"git": "Some", "rot": 1, "build": "make", "port": 99999, "root": "x"}')
    assert done.returncode == 2
    for key in ("`git`", "`rot`", "`build`", "`port`", "`root`"):
        assert key in done.stderr
    assert alone("--settings", "{").stderr == "paddock-agent: --settings: is not valid JSON\n"
    assert alone("--nothing").returncode == 2


def test_a_taken_port_is_told(agent: Running) -> None:
    done = alone("--port", str(agent.port))
    assert done.returncode == 1
    assert "address already in use; free the port" in done.stderr


def test_a_command_that_can_not_start(tmp_path: Path) -> None:
    done = alone("--port", "0", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program: no such file or directory" in done.stderr
    (tmp_path / "plain").write_text("")
    assert alone("--port", "0", "--", str(tmp_path / "plain")).returncode == 126


def test_nothing_is_logged_of_calls(agent: Running) -> None:
    agent.tool("exec", command="echo top-secret", env={"TOKEN": "top-secret"})
    agent.tool("file.write", path="top-secret", content="top-secret")
    agent.request("POST", "/mcp", b"top-secret")
    agent.stop()
    assert agent.process.communicate() == ("", "")


EPOLL_WAIT = {"x86_64": "232", "aarch64": "22"}[os.uname().machine]


@pytest.mark.parametrize("kept", [False, True])
def test_it_rests_between_calls(agent: Running, kept: bool) -> None:
    """At rest it has no timer: the loop waits without a time-out, whatever was called before."""
    assert agent.tool("exec", command="true", idle_timeout_s=50)["success"]
    if not kept:
        agent.connection.close()
    state = Path(f"/proc/{agent.process.pid}/syscall")
    message = finished(lambda: [group for group in [state.read_text().split()] if group[0] == EPOLL_WAIT])[0]
    assert int(message[4], 16) & 0xFFFFFFFF == 0xFFFFFFFF  # its time-out: -1


SUPERVISOR = """
import ctypes, os, socket, sys, time
from paddock_agent import supervisor

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, as the supervisor has it
ours, theirs = socket.socketpair()
woken, _ = os.pipe()
os.dup2(ours.fileno(), supervisor._CONTROL)
theirs.close()
child = os.posix_spawnp("sh", ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], os.environ, setsid=True)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
supervisor._supervise(child, woken, True)
"""


def test_what_is_left_ends_with_the_agents_socket() -> None:
    """Also where the command ends at the moment in which the agent lets go of it."""
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR], cwd=PROGRAM.parent, capture_output=True, text=True, check=True
    )
    assert not Path(f"/proc/{int(done.stdout)}").exists()
