"""Exits that the engine has lost, from its inspect and a /proc that the test writes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from controller.engine.exec.lost_exit import ExitEvidence
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.adopted_exec import ExecRef

ID = "c" * 64
INIT, LEADER = 100, 200
REF = ExecRef("exec", ID, INIT, "mark", 0)
RUNNING: dict[str, Any] = {"Running": True, "Pid": LEADER, "ExitCode": None}


@dataclass
class Host:
    """The processes of a host; `container` is as last observed."""

    proc: Path
    container: Container | None = None

    def begin(self, pid: int, *, state: str = "S", started: int = 5, group: str = f"/docker/{ID}") -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(f"4:pids:{group}\n")
        fields = [state, "1", "1", str(pid), *["0"] * 13, "1", "0", str(started), "4096"]
        (folder / "stat").write_text(f"{pid} (a) {' '.join(fields)} 100 0\n")

    def end(self, pid: int) -> None:
        for path in (self.proc / str(pid)).iterdir():
            path.unlink()
        (self.proc / str(pid)).rmdir()

    def evidence(self) -> ExitEvidence:
        return ExitEvidence(REF, self.proc, lambda _: self.container)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    created = Host(tmp_path)
    created.begin(INIT)
    return created


def test_a_dead_process_that_runs_for_the_engine_is_lost(host: Host) -> None:
    host.begin(LEADER)
    evidence = host.evidence()
    assert not evidence.is_lost(RUNNING, 0.0)
    assert evidence.is_alive
    host.end(LEADER)
    assert not evidence.is_alive
    assert not evidence.is_lost(RUNNING, 10.0), "a healthy engine may be late"
    assert not evidence.is_lost(None, 12.0), "unknown is not lost"
    assert not evidence.is_lost(RUNNING, 22.0), "it may wait for what other commands of the sandbox left behind"
    assert evidence.is_lost(RUNNING, 25.5)


def test_an_exec_that_the_engine_forgot_is_lost_at_once(host: Host) -> None:
    host.begin(LEADER)
    evidence = host.evidence()
    assert not evidence.is_lost(RUNNING, 0.0)
    assert not evidence.is_lost({}, 100.0), "its process runs"
    host.end(LEADER)
    assert evidence.is_lost({}, 101.0)


@pytest.mark.parametrize("state", [{"Running": False, "ExitCode": 0}, {"Running": False, "Pid": 0, "ExitCode": None}])
def test_what_the_engine_knows_is_not_lost(host: Host, state: dict[str, Any]) -> None:
    host.end(INIT)
    evidence = host.evidence()
    assert not any(evidence.is_lost(state, now) for now in (0.0, 100.0, 200.0))


def test_a_command_whose_run_ended_is_lost(host: Host) -> None:
    evidence = host.evidence()
    starting = {**RUNNING, "Pid": 0}
    assert not any(evidence.is_lost(starting, now) for now in (0.0, 100.0)), "the engine is still starting it"
    host.end(INIT)
    assert [evidence.is_lost(starting, now) for now in (101.0, 105.0)] == [False, True]


def test_a_reused_pid_is_another_process(host: Host) -> None:
    host.begin(LEADER)
    evidence = host.evidence()
    assert not evidence.is_lost(RUNNING, 0.0)
    host.begin(LEADER, started=99)
    assert [evidence.is_lost(RUNNING, now) for now in (1.0, 5.0, 16.5)] == [False, False, True]


def test_a_runtimes_waiting_process_is_the_commands(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.begin(INIT, started=50)
    host.begin(LEADER, started=60, group="/system.slice/containerd.service")  # of runsc
    evidence = ExitEvidence(replace(REF, since_ticks=55), host.proc, lambda _: None)
    assert not any(evidence.is_lost(RUNNING, now) for now in (0.0, 100.0))
    host.end(LEADER)
    assert [evidence.is_lost(RUNNING, now) for now in (101.0, 116.5)] == [False, True]


def test_a_pid_of_an_older_process_is_not_the_commands(host: Host) -> None:
    host.begin(LEADER, started=5, group="/user.slice")
    evidence = ExitEvidence(replace(REF, since_ticks=55), host.proc, lambda _: None)
    assert [evidence.is_lost(RUNNING, now) for now in (0.0, 15.5)] == [False, True]


def test_without_the_hosts_processes_the_containers_run_tells(tmp_path: Path) -> None:
    host = Host(tmp_path, Container(ID, "box", "uid", State.RUNNING, pid=INIT))
    evidence = host.evidence()
    assert not any(evidence.is_lost(RUNNING, now) for now in (0.0, 100.0))
    host.container = Container(ID, "box", "uid", State.EXITED)
    assert [evidence.is_lost(RUNNING, now) for now in (101.0, 105.0)] == [False, True]
