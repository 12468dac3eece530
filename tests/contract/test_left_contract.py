"""Commands that outlive the daemon that began them, on the fake and on a real Docker Engine."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from controller.kinds.runtime.adopted_exec import ExecRef
from controller.ports import AdoptedExecs, DetachableExec, NeverStarted, StreamError
from tests.contract.engine_hosts import EngineHost, docker_host, fake_host, read_all
from tests.daemon import wait_for


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    with (fake_host if request.param == "fake" else docker_host)() as created:
        yield created.settled()


def left(host: EngineHost) -> AdoptedExecs:
    engine: Any = host.engine
    adopted_execs: AdoptedExecs = engine.adopted_execs
    return adopted_execs


def let_go_of(host: EngineHost, *command: str) -> ExecRef:
    """Begin a detached command; return the key by which it is found again."""
    stream = host.streams.exec(host.running(host.new_uid()).id, command)
    assert isinstance(stream, DetachableExec)
    ref = stream.ref
    assert ref is not None
    stream.detach_stream()
    return ref


def ended(host: EngineHost, ref: ExecRef) -> bytes:
    return read_all(left(host).follow(ref, timeout_seconds=30))[2]


def test_how_one_ended_is_told(host: EngineHost) -> None:
    assert ended(host, let_go_of(host, "sh", "-c", "exit 3")) == b"3"


def test_one_that_goes_on_is_killed_when_its_time_is_over(host: EngineHost) -> None:
    ref = let_go_of(host, "sleep", "1000")
    chunks = list(left(host).follow(ref, timeout_seconds=0.2))
    assert [chunk.stream for chunk in chunks] == ["timeout", "exit"]
    assert chunks[-1].data == b"124"
    wait_for("its end", lambda: ended(host, ref) == b"137")


def test_one_is_killed_on_request_and_not_by_letting_go_again(host: EngineHost) -> None:
    ref = let_go_of(host, "sleep", "1000")
    again: Any = left(host).follow(ref, timeout_seconds=None)
    assert again.ref == ref
    again.detach_stream()
    assert list(again) == []
    killing: Any = left(host).follow(ref, timeout_seconds=None)
    killing.close()
    assert list(killing) == []
    wait_for("its end", lambda: ended(host, ref) == b"137")


def test_one_that_nobody_knows_is_told_of(host: EngineHost) -> None:
    ref = let_go_of(host, "true")
    with pytest.raises(StreamError, match="its exit code is unknown"):
        list(left(host).follow(ExecRef("0" * 64, ref.container_id, 1, "no mark", 1), timeout_seconds=30))


def test_one_that_was_prepared_and_never_started_says_so(host: EngineHost) -> None:
    exec_refs: list[ExecRef] = []

    def ends(ref: ExecRef) -> None:
        exec_refs.append(ref)
        raise StreamError("the daemon ends here")

    with pytest.raises(StreamError, match="ends here"):
        host.streams.exec(host.running(host.new_uid()).id, ["true"], prepared=ends)
    with pytest.raises(NeverStarted):
        list(left(host).follow(exec_refs[0], timeout_seconds=30))


def test_one_that_was_prepared_is_started_once_on_request(host: EngineHost) -> None:
    exec_refs: list[ExecRef] = []

    def ends(ref: ExecRef) -> None:
        exec_refs.append(ref)
        raise StreamError("the daemon ends here")

    container = host.running(host.new_uid()).id
    with pytest.raises(StreamError, match="ends here"):
        host.streams.exec(container, ["sh", "-c", "exit 7"], prepared=ends)
    with ThreadPoolExecutor(4) as pool:
        follow = left(host).follow
        observed = list(
            pool.map(lambda _: read_all(follow(exec_refs[0], timeout_seconds=60, starts=True))[2], range(4))
        )
    assert observed == [b"7"] * 4
    assert read_all(left(host).follow(exec_refs[0], timeout_seconds=60, starts=True))[2] == b"7"
