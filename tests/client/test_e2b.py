"""E2B's names: a client that they make is closed."""

import pytest

from paddock import Paddock
from paddock.e2b import NotFoundException, Sandbox
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
