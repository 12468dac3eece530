"""Commands that outlive their client: their log, their end, their number; and an API that answers beside them all."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.common.chunk import Chunk
from controller.kinds.registry import Kind, discover
from controller.ports import ExitLost, StreamError
from controller.service import errors
from controller.service.access import access
from controller.service.exec.detached import Detached
from controller.service.exec.exec_limits import ExecRules
from controller.service.exec.exec_records import ExecRecords
from paddock._client.errors import Refused
from tests.helpers_api import ApiStack, Endless
from tests.raw_client import Paddock, Sandbox

BASE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"


@pytest.fixture
def sandbox(running_api: ApiStack) -> Iterator[Sandbox]:
    with Paddock(f"unix://{running_api.socket}") as paddock:
        yield paddock.sandbox("quickstart")


def holds(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.01)


def kind() -> Kind:
    word = discover().by_word("sandbox")
    assert word is not None
    return word


def test_command_continues_and_its_log_is_kept(sandbox: Sandbox, running_api: ApiStack) -> None:
    go_on = threading.Event()

    def speaks(**_: Any) -> Iterator[Chunk]:
        yield Chunk("stdout", b"out\n")
        go_on.wait(30)
        yield Chunk("stderr", b"err\xff\n")
        yield Chunk("exit", b"3")

    running_api.streams.run = speaks
    detach = sandbox.detach(["a", "b"], env={"A": "1"}, working_dir="/tmp", timeout_seconds=5)
    assert (detach.state, detach.command, detach.exit_code) == ("Running", ("a", "b"), None)
    holds(lambda: sandbox.exec_log(detach.id) == b"out\n")
    go_on.set()
    holds(lambda: sandbox.execs()[0].state == "Exited")
    (detached_exec,) = sandbox.execs()
    assert (detached_exec.id, detached_exec.exit_code, detached_exec.finished_time != "") == (detach.id, 3, True)
    assert sandbox.exec_log(detach.id) == b"out\nerr\xff\n"
    assert sandbox.kill_exec(detach.id).state == "Exited", "what has ended is let be"
    _, requested = running_api.streams.asked[-1]
    assert (requested["env"], requested["working_dir"], requested["timeout_seconds"]) == ({"A": "1"}, "/tmp", 5)


def test_one_is_killed_and_its_log_stays(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    detach = sandbox.detach(["a"])
    holds(lambda: sandbox.exec_log(detach.id) == b"first\n")
    sandbox.kill_exec(detach.id)
    assert running_api.streams.closed.wait(30)
    holds(lambda: sandbox.execs()[0].state == "Killed")
    assert sandbox.exec_log(detach.id) == b"first\n"


def test_unknown_end_is_reported_as_lost(sandbox: Sandbox, running_api: ApiStack) -> None:
    def breaks(**_: Any) -> Iterator[Chunk]:
        yield Chunk("stdout", b"x")
        raise StreamError("the engine went away")

    def lost(**_: Any) -> Iterator[Chunk]:
        raise ExitLost("the engine lost it")
        yield

    running_api.streams.again = lost
    for run, state, message in (
        (breaks, "Lost", "the engine lost it"),
        (lost, "Lost", "the engine lost it"),
        (lambda **_: iter(()), "Lost", "its stream ended before the command"),
        (lambda **_: iter((Chunk("timeout", b""), Chunk("exit", b"124"))), "TimedOut", ""),
    ):
        running_api.streams.run = run
        detach = sandbox.detach(["a"])
        holds(lambda: sandbox.execs()[-1].state != "Running")
        detached_exec = sandbox.execs()[-1]
        assert (detached_exec.id, detached_exec.state, detached_exec.message) == (detach.id, state, message)


@pytest.mark.parametrize(
    ("command", "folder", "words"), [(["a" * 4097], "", "4097 bytes"), (["a"], "/sys", "belongs to the kernel")]
)
def test_programs_and_folders_are_bounded(sandbox: Sandbox, command: list[str], folder: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        sandbox.detach(command, working_dir=folder)
    assert not sandbox.execs()


def test_refused_command_leaves_no_record(sandbox: Sandbox, running_api: ApiStack) -> None:
    def refused(**_: Any) -> Iterator[Chunk]:
        raise StreamError("no such program")

    running_api.streams.run = refused
    with pytest.raises(Refused, match="no such program"):
        sandbox.detach(["a"])
    assert sandbox.execs() == []
    with pytest.raises(Refused, match="no detached command `none`"):
        sandbox.exec_log("none")


def test_of_long_output_head_and_tail_are_kept(sandbox: Sandbox, running_api: ApiStack) -> None:
    limit = ExecRules().output_bytes
    running_api.streams.run = lambda **_: iter(
        (*(Chunk("stdout", b"x" * limit) for _ in range(3)), Chunk("exit", b"0"))
    )
    sandbox.detach(["a"])
    holds(lambda: sandbox.execs()[0].state == "Exited")
    (detached_exec,) = sandbox.execs()
    assert detached_exec.omitted_bytes == 2 * limit
    assert f"{2 * limit} bytes left out".encode() in sandbox.exec_log(detached_exec.id)


def test_commands_are_limited_per_sandbox_and_host(api: ApiStack) -> None:
    for name in ("one", "two"):
        api.apply(f"{{apiVersion: paddock/v1alpha1, kind: Sandbox, metadata: {{name: {name}}}, {SPEC}}}")
        api.view.show(api.sandbox(name))
    into = api.services.sandbox_streams
    into.rules = ExecRules(per_sandbox=2)
    records = ExecRecords(api.folder / "few", 1000)
    detached = Detached(
        objects=api.services.objects,
        sandbox_streams=into,
        clock=api.clock,
        records=records,
        registry=discover(),
        most=3,
    )

    def ids(name: str) -> list[str]:
        return [detached_exec.id for detached_exec in detached.list(kind(), "default", name)]

    def start(name: str) -> str:
        return detached.start(kind(), "default", name, ["a"]).result(30).id

    def ended(name: str) -> bool:
        return all(detached_exec.state == "Exited" for detached_exec in detached.list(kind(), "default", name))

    created = []
    for name in ("one", "one", "one", "two", "two"):
        created.append(start(name))
        holds(lambda name=name: ended(name))  # type: ignore[misc]
    assert ids("one") == created[2:3], "its oldest went for its third, another one for the host's fourth"
    assert ids("two") == created[3:]
    api.streams.run = api.streams.endless
    for _ in range(2):
        start("one")
    with pytest.raises(errors.TooManyRequests, match="as many detached commands as it may"):
        detached.start(kind(), "default", "one", ["a"])
    api.streams.closed.set()


def test_one_caller_has_a_share_of_the_hosts(api: ApiStack) -> None:
    for name in ("one", "two"):
        api.apply(f"{{apiVersion: paddock/v1alpha1, kind: Sandbox, metadata: {{name: {name}}}, {SPEC}}}")
        api.view.show(api.sandbox(name))
    into = api.services.sandbox_streams
    into.rules = ExecRules(share=0.5)
    api.streams.run = api.streams.endless
    ann, ben = (Caller(name, "unix", (Grant(role="admin"),)) for name in ("ann", "ben"))

    records = ExecRecords(api.folder / "shared", 1000)
    parts = {"objects": api.services.objects, "sandbox_streams": into, "clock": api.clock, "records": records}
    detached = Detached(**parts, registry=discover(), most=4)

    def start(caller: Caller, name: str) -> None:
        with access.acting(caller):
            detached.start(kind(), "default", name, ["a"]).result(30)

    start(ann, "one")
    start(ann, "two")
    with pytest.raises(errors.TooManyRequests, match=r"ann \(caller_share is 0.5\) runs as many detached commands"):
        start(ann, "two")
    start(ben, "two")
    api.streams.closed.set()
    assert sorted(record.by for record in records.load()) == ["ann", "ann", "ben"], (
        "the next daemon knows whose they are"
    )


SPEC = "spec: {template: {image: paddock/python:1}}"


def test_hundred_open_streams_do_not_block_requests(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.services.sandbox_streams._exec_slots.most = 1000
    running_api.services.sandbox_streams.rules = ExecRules(per_sandbox=1000)
    running_api.streams.run = running_api.streams.log = running_api.streams.endless
    transport = httpx.HTTPTransport(
        uds=str(running_api.socket), verify=False, limits=httpx.Limits(max_connections=None)
    )
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        for _ in range(40):
            sandbox.detach(["a"])
        running = [sandbox.start(["a"]) for _ in range(40)]
        for entry in running:
            entry.wait_started()
        follow = client.build_request("GET", f"{BASE}/quickstart/logs?follow=true")
        logs = [client.send(follow, stream=True) for _ in range(40)]
        assert [response.status_code for response in logs] == [200] * 40
        assert client.get(BASE).status_code == 200
        assert len(sandbox.execs()) == 40
        running_api.streams.run = lambda **_: iter((Chunk("stdout", b"hi"), Chunk("exit", b"0")))
        assert sandbox.exec(["true"]).stdout == b"hi"
        assert not running_api.streams.closed.is_set(), "all of them are still open"
        running_api.streams.closed.set()
        for running_, log in zip(running, logs, strict=True):
            running_.kill()
            log.close()
    holds(lambda: all(detached_exec.state == "Lost" for detached_exec in sandbox.execs()))


def restarted(api: ApiStack) -> tuple[Detached, Callable[[], None]]:
    """Use-cases of a daemon that adopts the commands of its predecessor."""
    services = api.services
    detached = Detached(
        objects=services.objects,
        sandbox_streams=services.sandbox_streams,
        clock=api.clock,
        records=ExecRecords(api.folder / "execs", ExecRules().output_bytes),
        registry=discover(),
    )
    return detached, detached.resume()


def shown(detached: Detached) -> Any:
    (detached_exec,) = detached.list(kind(), "default", "quickstart")
    return detached_exec


def test_restarted_daemon_knows_ended_commands(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = lambda **_: iter((Chunk("stdout", b"out\n"), Chunk("exit", b"3")))
    sandbox.detach(["a", "b"])
    holds(lambda: sandbox.execs()[0].state == "Exited")
    (before,) = running_api.services.detached.list(kind(), "default", "quickstart")
    again, _ = restarted(running_api)
    assert shown(again) == before
    assert again.log(kind(), "default", "quickstart", before.id) == b"out\n"
    assert running_api.services.sandbox_streams._exec_slots._taken == {}


def test_running_command_is_adopted_after_restart(sandbox: Sandbox, running_api: ApiStack) -> None:
    running_api.streams.run = running_api.streams.endless
    detach = sandbox.detach(["a"], timeout_seconds=100)
    holds(lambda: sandbox.exec_log(detach.id) == b"first\n")
    running_api.services.detached.close()
    assert running_api.streams.closed.wait(30)
    holds(lambda: running_api.services.sandbox_streams._exec_slots._taken == {})
    assert sandbox.execs()[0].state == "Running", "it was let go of, not ended"
    with pytest.raises(Refused, match="the daemon is stopping"):
        sandbox.detach(["a"])
    running_api.clock.advance(40)
    go_on = threading.Event()

    def ends(**_: Any) -> Iterator[Chunk]:
        go_on.wait(30)
        yield Chunk("exit", b"7")

    running_api.streams.again = ends
    again, _ = restarted(running_api)
    assert (shown(again).state, shown(again).id) == ("Running", detach.id)
    assert len(running_api.services.sandbox_streams._exec_slots._taken) == 1, "it has its place"
    (ref, requested) = running_api.streams.asked[-1]
    assert (ref, requested["timeout_seconds"]) == ("exec-1", 60)
    assert b"first\n\n[... the daemon was restarted" in again.log(kind(), "default", "quickstart", detach.id)
    go_on.set()
    holds(lambda: shown(again).state == "Exited")
    assert (shown(again).exit_code, running_api.services.sandbox_streams._exec_slots._taken) == (7, {})


@pytest.mark.parametrize(("tty", "state"), [(False, "TimedOut"), (True, "Killed")])
def test_attached_command_of_a_killed_daemon_is_adopted(running_api: ApiStack, tty: bool, state: str) -> None:
    running_api.streams.run = running_api.streams.endless
    attached = running_api.services.sandbox_streams.exec(
        kind(), "default", "quickstart", ["a", "b"], tty=tty, timeout_seconds=100
    )()
    assert running_api.services.detached.list(kind(), "default", "quickstart") == []
    running_api.clock.advance(40)
    killed, go_on = threading.Event(), threading.Event()

    def late() -> Iterator[Chunk]:
        go_on.wait(30)
        yield from (Chunk("timeout", b""), Chunk("exit", b"124"))

    running_api.streams.again = lambda **_: Endless(killed) if tty else late()
    again, _ = restarted(running_api)
    assert (running_api.streams.asked[-1][0], running_api.streams.asked[-1][1]["timeout_seconds"]) == ("exec-1", 60)
    assert (shown(again).command, shown(again).started_at) == (("a", "b"), running_api.clock.now() - 40)
    go_on.set()
    holds(lambda: shown(again).state == state)
    assert killed.is_set() is tty
    attached.close()


def test_attached_command_leaves_no_record(running_api: ApiStack) -> None:
    done = running_api.services.sandbox_streams.exec(kind(), "default", "quickstart", ["a"])()
    assert [chunk.stream for chunk in done] == ["exit"]
    again, _ = restarted(running_api)
    assert again.list(kind(), "default", "quickstart") == []


def test_command_whose_stream_breaks_is_adopted(sandbox: Sandbox, running_api: ApiStack) -> None:
    def breaks(**_: Any) -> Iterator[Chunk]:
        yield Chunk("stdout", b"x")
        running_api.clock.advance(10)
        raise StreamError("the engine was restarted")

    running_api.streams.run, running_api.streams.again = (
        breaks,
        lambda **_: iter((Chunk("timeout", b""), Chunk("exit", b"124"))),
    )
    detach = sandbox.detach(["a"], timeout_seconds=100)
    holds(lambda: sandbox.execs()[0].state == "TimedOut")
    assert (running_api.streams.asked[-1][0], running_api.streams.asked[-1][1]["timeout_seconds"]) == ("exec-1", 90)
    assert sandbox.exec_log(detach.id).startswith(b"x\n[... the daemon was restarted")


def test_arguments_that_are_not_utf8_are_bytes(sandbox: Sandbox, running_api: ApiStack) -> None:
    odd = ["a", "\udcff", "é"]
    sandbox.detach(odd)
    assert running_api.streams.asked[-1][1]["command"] == tuple(odd)
    assert sandbox.execs()[0].command == ("a", "\ufffd", "é")
    sandbox.exec(odd)
    assert running_api.streams.asked[-1][1]["command"] == tuple(odd)
    with pytest.raises(Refused, match="must be valid text"):
        sandbox.detach(["\ud800"])


def test_adopted_command_can_be_killed(sandbox: Sandbox, running_api: ApiStack) -> None:
    killed = threading.Event()  # its own: the first daemon may still be letting go
    running_api.streams.run, running_api.streams.again = running_api.streams.endless, lambda **_: Endless(killed)
    detach = sandbox.detach(["a"], timeout_seconds=0)
    running_api.services.detached.close()
    assert running_api.streams.closed.wait(30)
    again, _ = restarted(running_api)
    assert running_api.streams.asked[-1] == ("exec-1", {"timeout_seconds": None, "escaped": ANY, "starts": False})
    again.kill(kind(), "default", "quickstart", detach.id)
    assert killed.wait(30)
    holds(lambda: shown(again).state == "Killed")


def test_stale_and_broken_records_are_removed(sandbox: Sandbox, running_api: ApiStack) -> None:
    sandbox.detach(["a"])
    holds(lambda: sandbox.execs()[0].state == "Exited")
    folder = running_api.folder / "execs"
    (folder / "broken").mkdir()
    (folder / "broken" / "record.json").write_text("{")
    running_api.finish_deletion()
    running_api.apply()
    again, _ = restarted(running_api)
    assert again.list(kind(), "default", "quickstart") == []
    assert list(folder.iterdir()) == []


def test_command_without_record_does_not_start(sandbox: Sandbox, running_api: ApiStack) -> None:
    (running_api.folder / "execs").write_text("no folder")
    with pytest.raises(Refused, match="can't be recorded"):
        sandbox.detach(["a"])
    assert running_api.streams.asked == []
