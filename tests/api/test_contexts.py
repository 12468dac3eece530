"""Code contexts by HTTP, over the real agent as a process, and over listeners that pose as one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controller.kinds.observed.observed import State
from tests.agent.conftest import Start, start
from tests.api.test_agent import PORT, Front, posing
from tests.helpers_api import ApiStack

__all__ = ["start"]


@pytest.fixture
def front(served: ApiStack) -> Iterator[Front]:
    made = Front(served)
    with made.http:
        yield made


@pytest.fixture
def real(front: Front, start: Start) -> Front:
    """A sandbox with a real agent. Its Python is the one of the tests, without IPython."""
    front.api.ports.listen(PORT, start(environment={"PADDOCK_KERNEL_ENGINE": "basic"}).port)
    return front


def run(front: Front, code: str, path: str = "/contexts/execute", **more: Any) -> list[dict[str, Any]]:
    answer = front.http.post(path, json={"code": code, **more})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def plain(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["text/plain"] for event in events if event["type"] == "result"]


def test_variables_stay_between_executions(real: Front) -> None:
    first = run(real, "a = 41\nprint('hi')")
    assert [event["type"] for event in first] == ["started", "stdout", "done"]
    assert first[0] == {
        "type": "started",
        "context": "python",
        "language": "python",
        "engine": "basic",
        "reason": "",
        "fresh": True,
        "lost": "",
    }
    second = run(real, "a + 1")
    assert second[0]["fresh"] is False
    assert plain(second) == ["42"]
    assert second[-1]["status"] == "ok"
    listed = real.http.get("/contexts").json()["items"]
    assert [(context["name"], context["state"], context["executions"]) for context in listed] == [("python", "idle", 2)]
    assert ("paddock_context_executions_total", {"language": "python", "outcome": "ok"}) in [
        (name, labels) for name, labels in real.api.meter.counted
    ]


def test_contexts_have_names_folders_and_variables(real: Front, tmp_path: Any) -> None:
    made = real.http.post("/contexts", json={"name": "mine", "cwd": str(tmp_path), "env": {"Q": "7"}})
    assert (made.status_code, made.json()["cwd"]) == (201, str(tmp_path))
    assert plain(run(real, "import os; os.environ['Q'], os.getcwd()", "/contexts/mine/execute")) == [
        repr(("7", str(tmp_path)))
    ]
    assert real.http.post("/contexts", json={"name": "mine"}).json()["reason"] == "AlreadyExists"
    assert real.http.post("/contexts", json={"name": "other", "cwd": "/no/such"}).status_code == 400
    copy = real.http.post("/contexts/mine/fork", json={"name": "copy"})
    assert (copy.status_code, copy.json()["forkOf"]) == (201, "mine")
    assert real.http.post("/contexts/mine/restart").status_code == 200
    assert run(real, "os", "/contexts/mine/execute")[1]["name"] == "NameError"
    assert run(real, "os", "/contexts/copy/execute")[-1]["status"] == "ok"
    assert real.http.delete("/contexts/copy").status_code == 204
    assert real.http.get("/contexts/copy").status_code == 404
    assert real.http.get("/contexts/mine").json()["name"] == "mine"


def test_at_its_time_limit_code_ends_and_state_stays(real: Front) -> None:
    run(real, "a = 5")
    events = run(real, "while True: pass", timeoutSeconds=0.3)
    assert [event["type"] for event in events[1:]] == ["error", "done"]
    assert (events[1]["name"], events[-1]["status"], events[-1]["stateLost"]) == (
        "KeyboardInterrupt",
        "timeout",
        False,
    )
    assert plain(run(real, "a")) == ["5"]


def test_live_names_complete_code(real: Front) -> None:
    assert real.http.post("/contexts/python/complete", json={"code": "a"}).status_code == 404
    run(real, "value_of_mine = 1")
    answer = real.http.post("/contexts/python/complete", json={"code": "print(value_of"})
    assert answer.json() == {"replaced": 8, "matches": ["value_of_mine"]}
    assert real.http.post("/contexts/python/complete", json={"code": "x" * 70_000}).status_code == 400


def test_most_contexts_are_bounded(real: Front) -> None:
    answers = [real.http.post("/contexts", json={"language": "bash"}) for _ in range(9)]
    assert [answer.status_code for answer in answers] == [201] * 8 + [429]
    assert "delete one of them" in answers[-1].json()["message"]


def test_contexts_of_a_frozen_sandbox_stand_still(real: Front) -> None:
    run(real, "a = 1")
    real.show(State.PAUSED, agent="paddock-agent-1")
    listed = real.http.get("/contexts")
    assert listed.status_code == 200, listed.text
    assert [context["name"] for context in listed.json()["items"]] == ["python"]
    refused = real.http.post("/contexts/python/interrupt")
    assert (refused.status_code, "its contexts stand still" in refused.json()["message"]) == (409, True)


def test_sandbox_without_agent_says_what_to_add(front: Front) -> None:
    front.show(agent="")
    for answer in (front.http.post("/contexts/execute", json={"code": "1"}), front.http.get("/contexts")):
        assert answer.status_code == 409
        assert "add `agent: {}` to its template" in answer.json()["message"]


def test_older_agent_is_refused_in_words(front: Front) -> None:
    body = b'{"error": "/contexts/execute: nothing is there"}'
    answer = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )

    def old(sock: Any) -> None:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        sock.recv(65536)
        sock.sendall(answer)

    with posing(front, old):
        refused = front.http.post("/contexts/execute", json={"code": "1"})
    assert refused.status_code == 409
    assert "its agent is older than code contexts" in refused.json()["message"]


def test_audit_has_the_size_and_never_the_code(real: Front) -> None:
    run(real, "secret = 'hunter2'")
    entries = [entry for entry in real.api.store.audit.entries() if "contexts" in str(entry)]
    assert entries
    assert "hunter2" not in str(entries)
    assert "'characters': 18" in str(entries)
