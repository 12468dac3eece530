"""E2B's names: a client that they make is closed, and times count from the call."""

import time

import pytest

from controller.kinds.common.chunk import Chunk
from controller.plan.common.status_json import rfc3339
from paddock import Paddock
from paddock.e2b import NotFoundException, Sandbox, TimeoutException
from tests.helpers_api import World


def test_own_client_is_closed_and_a_given_one_is_not(served: World, monkeypatch: pytest.MonkeyPatch) -> None:
    served.apply()
    monkeypatch.setenv("PADDOCK_SERVER", f"unix://{served.socket}")
    closed: list[Paddock] = []
    close = Paddock.close

    def counted(self: Paddock) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Paddock, "close", counted)
    with pytest.raises(NotFoundException):
        Sandbox.connect("none")
    assert len(closed) == 1
    with Paddock() as mine:
        Sandbox.connect("quickstart", paddock=mine)
        assert len(closed) == 1
    own = Sandbox.connect("quickstart")
    assert own.kill()
    assert len(closed) == 3
    assert (own.is_running(), own.kill()) == (False, False)


def deadline_seconds(served: World) -> int:
    return int(served.sandbox().spec["lifecycle"]["activeDeadlineSeconds"])


def test_a_timeout_counts_from_the_call(served: World) -> None:
    served.apply()
    with Paddock(f"unix://{served.socket}") as paddock:
        sandbox = Sandbox.connect("quickstart", paddock=paddock)
        sandbox.set_timeout(60)
        assert deadline_seconds(served) == 60, "it has not started yet"
        served.change(status={"startTime": rfc3339(time.time() - 10), "firstStartTime": rfc3339(time.time() - 3600)})
        for seconds in (60, 60, 5):
            sandbox.set_timeout(seconds)
            assert 3600 + seconds <= deadline_seconds(served) <= 3620 + seconds
        Sandbox.connect("quickstart", paddock=paddock, timeout=1)
        assert deadline_seconds(served) >= 3605, "connecting shortens nothing"
        Sandbox.connect("quickstart", paddock=paddock, timeout=600)
        assert deadline_seconds(served) >= 4200


def test_connecting_gives_anothers_sandbox_no_deadline(served: World) -> None:
    served.apply()
    with Paddock(f"unix://{served.socket}") as paddock:
        Sandbox.connect("quickstart", paddock=paddock)
    assert served.sandbox().spec["lifecycle"].get("activeDeadlineSeconds") is None


def test_late_commands_raise_a_timeout(served: World) -> None:
    served.apply()
    served.view.show(served.sandbox())
    served.streams.run = lambda **_: iter((Chunk("stdout", b"begun"), Chunk("timeout", b""), Chunk("exit", b"124")))
    with Paddock(f"unix://{served.socket}") as paddock:
        sandbox = Sandbox.connect("quickstart", paddock=paddock)
        with pytest.raises(TimeoutException, match="longer"):
            sandbox.commands.run("sleep 60", timeout=1)
        with pytest.raises(TimeoutException):
            sandbox.commands.run("sleep 60", background=True, timeout=1).wait()
        with pytest.raises(TimeoutException):
            sandbox.run_code("while True: pass", timeout=1)
