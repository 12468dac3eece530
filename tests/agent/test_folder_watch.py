"""`POST /watch`: events of inotify below a folder, for the daemon."""

import http.client
import json
import shutil
from typing import Any

from tests.agent.conftest import Running


class Watched:
    """An open watch."""

    def __init__(self, agent: Running, **body: Any) -> None:
        self.connection = agent.connect()
        request = {"path": str(agent.root), "recursive": True, **body}
        self.connection.request("POST", "/watch", json.dumps(request), {"content-type": "application/json"})
        self.answer: http.client.HTTPResponse = self.connection.getresponse()

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def until(self, name: str, change: str) -> list[tuple[str, str]]:
        """Return the events up to this one."""
        events: list[tuple[str, str]] = []
        while (name, change) not in events:
            event = json.loads(self.answer.readline())
            if "name" in event:
                events.append((event["name"], event["change"]))
        return events


def test_each_event_is_said_once_and_in_order(agent: Running) -> None:
    (agent.root / "old").mkdir()
    with Watched(agent) as watch:
        assert json.loads(watch.answer.readline()) == {"ready": True}
        (agent.root / "old" / "a").write_text("x")
        (agent.root / "old" / "a").rename(agent.root / "b")
        (agent.root / "b").chmod(0o600)
        (agent.root / "b").unlink()
        assert list(dict.fromkeys(watch.until("b", "remove"))) == [
            ("old/a", "create"),
            ("old/a", "write"),
            ("old/a", "rename"),
            ("b", "create"),
            ("b", "chmod"),
            ("b", "remove"),
        ]
        (agent.root / "new" / "deep").mkdir(parents=True)
        (agent.root / "new" / "deep" / "c").touch()
        events = watch.until("new/deep/c", "create")
        assert sorted(events) == [("new", "create"), ("new/deep", "create"), ("new/deep/c", "create")]
        (agent.root / "new").rename(agent.root / "moved")
        (agent.root / "moved" / "deep" / "d").touch()
        assert watch.until("moved/deep/d", "create") == [
            ("new", "rename"),
            ("moved", "create"),
            ("moved/deep/d", "create"),
        ]
        shutil.rmtree(agent.root / "moved")
        assert ("moved/deep", "remove") in watch.until("moved", "remove")


def test_what_can_not_be_watched_is_refused(agent: Running) -> None:
    (agent.root / "file").touch()
    for path in (agent.root / "none", agent.root / "file"):
        with Watched(agent, path=str(path)) as watch:
            assert (watch.answer.status, json.loads(watch.answer.read())["reason"]) == (422, "NoWatch")
    for body in ({"path": "relative"}, {"recursive": 1}):
        with Watched(agent, **body) as watch:
            assert watch.answer.status == 400
    with Watched(agent, recursive=False) as watch:
        (agent.root / "folder").mkdir()
        (agent.root / "folder" / "in").touch()
        (agent.root / "last").touch()
        assert watch.until("last", "create") == [("folder", "create"), ("last", "create")]
