"""Detection of stuck container runtimes, from artificial /proc trees and a real process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.kernel.kill import process_of, ticks_now
from controller.engine.observe.stuck_exec import StuckExecWatch
from tests.engine.test_engine_cgroups import ALL_V1, ID, PID, Host

GROUP = f"/docker/{ID}"
RUNTIME = ("runc", "--root", "/run", "exec", "--process", "/tmp/p", "--detach", ID)
BY_HAND = ("runc", "--root", "/run", "exec", "-t", ID, "sh")


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as started:
        yield started
        started.kill()


def host(folder: Path, *, frozen: bool, v2: bool = False) -> Host:
    created = Host(folder, v1=() if v2 else ALL_V1, v2=v2, group=GROUP)
    if v2:
        created.fill("unified", {"cgroup.events": f"populated 1\nfrozen {int(frozen)}"})
    else:
        created.fill("freezer", {"freezer.state": "FROZEN" if frozen else "THAWED"})
    add(created, PID, parent=1, group=GROUP, words=("runc", "init"))
    return created


def add(made: Host, pid: int, *, parent: int, group: str, words: tuple[str, ...], age_seconds: float = 5.0) -> None:
    made.process(pid, group)
    started = ticks_now() - int(age_seconds * os.sysconf("SC_CLK_TCK"))
    fields = ["S", str(parent), *["0"] * 15, "1", "0", str(started), "4096", *["0"] * 10]
    (made.proc / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
    (made.proc / str(pid) / "cmdline").write_bytes(b"".join(name.encode() + b"\0" for name in words))


def test_what_a_process_calls_itself_hinders_nobody(tmp_path: Path, victim: "subprocess.Popen[bytes]") -> None:
    created = host(tmp_path, frozen=True)
    add(created, victim.pid, parent=1, group="/", words=RUNTIME)
    add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    add(created, 77, parent=1, group="/docker/other", words=("a",))
    reported = (created.proc / "77/stat").read_bytes()
    (created.proc / "77/stat").write_bytes(reported.replace(b"(a) b)", b"(\xff\xfe)"))
    (created.proc / "77/cmdline").write_bytes(b"\xff\0exec\0--detach\0" + ID.encode() + b"\0")
    assert freed(created, victim)


def test_only_an_id_is_looked_for(tmp_path: Path, victim: "subprocess.Popen[bytes]") -> None:
    created = host(tmp_path, frozen=True)
    add(created, victim.pid, parent=1, group="/", words=("runc", "exec", "--detach", "docker"))
    add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    assert StuckExecWatch(created.cgroups).free("docker") == 0


def freed(made: Host, victim: "subprocess.Popen[bytes]") -> bool:
    count = StuckExecWatch(made.cgroups).free(ID)
    if count:
        victim.wait(60)
    assert (victim.poll() is not None) == bool(count)
    return bool(count)


@pytest.mark.parametrize("v2", [False, True])
def test_a_runtime_with_a_frozen_child_is_killed(
    tmp_path: Path, victim: "subprocess.Popen[bytes]", *, v2: bool
) -> None:
    created = host(tmp_path, frozen=True, v2=v2)
    add(created, victim.pid, parent=1, group="/", words=RUNTIME)
    add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    assert freed(created, victim)


def test_an_overdue_runtime_is_killed(tmp_path: Path, victim: "subprocess.Popen[bytes]") -> None:
    created = host(tmp_path, frozen=False)
    add(created, victim.pid, parent=1, group="/", words=RUNTIME, age_seconds=11.0)
    add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    assert freed(created, victim)


def test_runtime_writing_an_unread_error_is_killed(tmp_path: Path, victim: "subprocess.Popen[bytes]") -> None:
    created = host(tmp_path, frozen=False)
    add(created, victim.pid, parent=1, group="/", words=RUNTIME)
    waits_at(created, victim.pid, "anon_pipe_write")
    assert freed(created, victim)


@pytest.mark.parametrize(("channel", "child"), [("anon_pipe_write", True), ("futex_do_wait", False)])
def test_runtime_that_may_come_back_is_left(
    tmp_path: Path, victim: "subprocess.Popen[bytes]", channel: str, *, child: bool
) -> None:
    created = host(tmp_path, frozen=False)
    add(created, victim.pid, parent=1, group="/", words=RUNTIME)
    waits_at(created, victim.pid, channel)
    if child:
        add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    assert not freed(created, victim)


def waits_at(made: Host, pid: int, channel: str) -> None:
    for thread, name in ((pid, "futex_do_wait"), (pid + 1, channel)):
        folder = made.proc / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "wchan").write_text(name)


@pytest.mark.parametrize(
    ("told", "frozen", "child"),
    [
        ({"words": ("runc", "exec", "f00d")}, True, True),  # of another container
        ({"words": ("docker", "exec", ID, "sh")}, True, False),  # a hand's client: it has no half in the sandbox
        ({"words": ("runc", "state", "--detach", ID)}, True, True),
        ({"words": BY_HAND}, True, True),  # it lasts as long as its command
        ({"group": GROUP}, True, True),  # in the sandbox: it says of itself what it likes
        ({"age_seconds": 0.0}, True, True),  # it has only just begun
        ({}, False, True),  # nothing is frozen
    ],
)
@pytest.mark.parametrize("v2", [False, True])
def test_all_others_are_let_be(
    tmp_path: Path, victim: "subprocess.Popen[bytes]", told: dict[str, object], *, frozen: bool, child: bool, v2: bool
) -> None:
    created = host(tmp_path, frozen=frozen, v2=v2)
    add(created, victim.pid, **{"parent": 1, "group": "/", "words": RUNTIME, **told})  # type: ignore[arg-type]
    if child:
        add(created, PID, parent=victim.pid, group=GROUP, words=("runc", "init"))
    assert not freed(created, victim)


def test_a_process_may_have_any_name() -> None:
    """Return a real process, as read from the kernel."""
    script = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff) \\xfe'); print(); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"\n"
        observed = process_of(Path("/proc"), process.pid)
        process.stdin.close()
    assert observed is not None
    assert (observed.pid, observed.parent) == (process.pid, os.getpid())
