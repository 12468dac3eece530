"""Links to ports: what is kept of them stays small."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.api.fleet.identity import Identity
from controller.api.preview.routes import AddressHolder, PreviewLinks, PreviewRequestBody, create
from controller.app.previews import PreviewListener
from controller.kinds.access.access import Caller
from controller.kinds.runtime.preview import MOST_SECONDS, PreviewTarget
from controller.service.access import access
from controller.service.access.access import FORWARDED
from controller.service.errors import Conflict
from controller.service.front.previews import Previews
from tests.conftest import HandClock


class Sandboxes:
    """Stored sandboxes by their names; all are the current one of the name."""

    def __init__(self) -> None:
        self.uids = {"box": "uid-1"}

    def get(self, _kind: Any, _namespace: str, name: str) -> Any:
        return SimpleNamespace(uid=self.uids[name])

    def list(self, _kind: Any) -> Any:
        return SimpleNamespace(objects=[SimpleNamespace(uid=uid) for uid in self.uids.values()])


def _previews(folder: Path, sandboxes: Sandboxes) -> Previews:
    other: Any = SimpleNamespace(record_end=lambda *_: None)
    objects: Any = sandboxes
    clock = HandClock()
    return Previews(objects=objects, registry=other, tokens=other, recorder=other, clock=clock, folder=folder)


def test_only_voided_links_of_sandboxes_are_kept(tmp_path: Path) -> None:
    sandboxes = Sandboxes()
    previews = _previews(tmp_path, sandboxes)
    previews.void("default", "box")
    sandboxes.uids = {"box": "uid-2"}
    previews.void("default", "box")
    assert json.loads((tmp_path / "links.json").read_text()) == {"uid-2": {"counter": 1}}


def test_a_link_of_another_hosts_user_is_short(tmp_path: Path) -> None:
    """Their groups can't be looked up here again: a right that is gone ends within the hour. A token can."""
    previews = _previews(tmp_path, Sandboxes())
    target = PreviewTarget("default", "box", 3000)
    callers = {
        "a user of another host": Caller("lea (uid 1000)"),
        "a user of this host": Caller("lea (uid 1000)", uid=1000),
        "a token": Caller("token ci", token_id="0123456789ab"),
    }
    seconds = {}
    for name, caller in callers.items():
        with access.acting(caller):
            seconds[name] = previews.create(target, MOST_SECONDS).expires - int(HandClock().now())
    assert seconds == {name: 3600 if "another" in name else MOST_SECONDS for name in callers}


def test_no_listener_runs_before_the_first_link(tmp_path: Path) -> None:
    """A daemon without previews pays nothing: no thread, no port, no file."""
    before, started = set(threading.enumerate()), []
    core: Any = SimpleNamespace(settings=SimpleNamespace(preview_address="127.0.0.1:0"))
    previews = _previews(tmp_path, Sandboxes())
    listener = PreviewListener(core, SimpleNamespace(), previews, AddressHolder())  # type: ignore[arg-type]
    previews.opened = lambda: started.append(listener)
    assert (set(threading.enumerate()) - before, previews.has_links, list(tmp_path.iterdir())) == (set(), False, [])
    listener.close()
    previews.create(PreviewTarget("default", "box", 3000))
    assert (len(started), previews.has_links) == (1, True)


def test_another_hosts_loopback_gets_no_link(tmp_path: Path) -> None:
    links: Any = PreviewLinks(_previews(tmp_path, Sandboxes()), AddressHolder())
    forwarded: Any = SimpleNamespace(scope={"state": {FORWARDED: Identity("one", Caller("ci"), "uid-1", "https")}})
    with pytest.raises(Conflict, match="use `paddock port-forward"):
        create(None, links, forwarded, "default", "box", PreviewRequestBody(port=3000))  # type: ignore[arg-type]
