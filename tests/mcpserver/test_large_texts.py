"""Large texts of MCP tools pass the queue of all large texts, beside neighbours that notice nothing."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import httpx
import pytest

from controller.service.parsing import MOST_WAITING, SMALL_BYTES
from tests.api.listeners import API, client, token
from tests.api.test_large_bodies import Held
from tests.api.test_unread_answers import typical_seconds
from tests.helpers_api import QUICKSTART, ApiStack
from tests.mcpserver.clients import serving

TEXT = "x: " + "y" * SMALL_BYTES
CALLS: dict[str, dict[str, Any]] = {
    "sandbox.apply": {"documents": TEXT},
    "docker.compose.up": {"file": TEXT},
    "docker.compose.down": {"file": TEXT},
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-06-18",
}


def called(asking: httpx.Client, tool: str, arguments: dict[str, Any]) -> httpx.Response:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return asking.post("/mcp", json=message, headers=HEADERS)


def answer(response: httpx.Response) -> dict[str, Any]:
    line = next(name for name in response.text.splitlines() if name.startswith("data:"))
    result: dict[str, Any] = json.loads(line.removeprefix("data:"))["result"]
    return result


@pytest.fixture
def parsed(api: ApiStack, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Parsing takes as long as it is held."""
    reserved = Held()

    def work(*_: Any, **__: Any) -> list[Any]:
        reserved.work("one")
        return []

    monkeypatch.setattr(api.services.apply, "apply", work)
    monkeypatch.setattr(api.services.compose, "up", lambda *_, **__: reserved.work("one"))
    monkeypatch.setattr(api.services.compose, "down", work)
    return reserved


@pytest.fixture
def neighbour(api: ApiStack) -> Iterator[httpx.Client]:
    api.apply()
    with serving(api), client(api) as created:
        yield created


@pytest.mark.parametrize("tool", CALLS)
def test_one_large_text_of_a_caller_is_parsed_at_a_time(
    api: ApiStack, neighbour: httpx.Client, parsed: Held, tool: str
) -> None:
    many = MOST_WAITING + 4
    with client(api, token(api, "user")) as attacker, ThreadPoolExecutor(many) as pool:
        calls = [pool.submit(called, attacker, tool, CALLS[tool]) for _ in range(many)]
        try:
            assert parsed.begun.acquire(timeout=60)
            outcome = next(iter(wait(calls, timeout=60, return_when=FIRST_COMPLETED).done)).result()
            assert "large requests waiting" in outcome.text, outcome.text
            assert neighbour.get(f"{API}/namespaces/default/sandboxes/quickstart").status_code == 200
            small = called(neighbour, "sandbox.get", {"name": "quickstart"})
            assert answer(small)["structuredContent"]["metadata"]["name"] == "quickstart"
        finally:
            parsed.may_end.set()
        wait(calls)
    assert (parsed.most, parsed.twice) == (1, False)


def test_texts_of_many_values_leave_neighbours_alone(api: ApiStack, neighbour: httpx.Client) -> None:
    over, many = threading.Event(), MOST_WAITING + 4  # some are refused, and try again at once
    text = "x: [" + "1," * 100_000 + "1]"

    def attack(attacker: httpx.Client) -> None:
        while not over.is_set():
            called(attacker, "sandbox.apply", {"documents": text})

    alone = typical_seconds(neighbour)
    with client(api, token(api, "user")) as attacker, ThreadPoolExecutor(many) as pool:
        attacks = [pool.submit(attack, attacker) for _ in range(many)]
        try:
            beside = typical_seconds(neighbour)
        finally:
            over.set()
        for future in attacks:
            future.result()
    assert beside < 40 * alone + 0.3, f"{alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside"


def test_values_are_counted_while_they_are_read(neighbour: httpx.Client) -> None:
    documents = called(neighbour, "sandbox.apply", {"documents": "x: [" + "1," * 400_001 + "1]"})
    assert answer(documents)["isError"]
    assert "more than 400,000 values" in documents.text
    options = called(neighbour, "docker.compose.up", {"file": "services: {}", "options": "[" + "1," * 60_000 + "1]"})
    assert answer(options)["isError"]
    assert "more than 50,000 JSON values" in options.text


def test_documents_as_objects_may_be_large(neighbour: httpx.Client, api: ApiStack) -> None:
    sandbox = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "large", "annotations": {"example.org/note": "é" * 80_000}},
        "spec": {"template": {"image": "paddock/python:1"}},
    }
    applied = called(neighbour, "sandbox.apply", {"documents": sandbox, "waitSeconds": 0})
    assert answer(applied)["structuredContent"]["items"][0]["result"] == "created", applied.text
    assert len(api.sandbox("large").annotations["example.org/note"]) == 80_000


def test_a_text_outside_of_the_queue_is_refused(api: ApiStack) -> None:
    from controller.kinds.access.access import Caller, Grant
    from controller.service.access.access import acting
    from controller.service.objects.apply import Source

    text = "x: " + "y" * 8 * SMALL_BYTES
    services, threads = api.services, threading.active_count()
    with acting(Caller("attacker", "", (Grant.model_validate({"role": "user", "namespaces": ["*"]}),))):
        for parse in (
            lambda: services.apply.apply([Source("a", text)]),
            lambda: services.diff.diff([Source("a", text)]),
            lambda: services.write.create(services.registry.by_word("sandbox"), "default", text),  # type: ignore[arg-type]
            lambda: services.compose.up(text),
            lambda: services.compose.down(text),
        ):
            with pytest.raises(RuntimeError, match="outside of Parsing"):
                parse()
    assert threading.active_count() == threads


def test_list_of_large_sandboxes_is_cut_by_size(neighbour: httpx.Client, api: ApiStack) -> None:
    large = replace(api.sandbox(), annotations={"example.org/note": "x" * (200 << 10)})
    with api.store.transaction() as transaction:
        for number in range(20):
            transaction.put(replace(large, name=f"large-{number:02}", uid=f"uid-{number}", resource_version=0))
    listed = answer(called(neighbour, "sandbox.list", {}))["structuredContent"]
    assert len(listed["items"]) + listed["more"] == 21
    assert 0 < len(listed["items"]) < 6


def test_diff_of_large_objects_is_one_large_request(neighbour: httpx.Client, api: ApiStack) -> None:
    note = {"example.org/note": "x" * (255 << 10)}
    large = replace(api.sandbox(), annotations=note)
    with api.store.transaction() as transaction:
        for number in range(80):
            transaction.put(replace(large, name=f"large-{number:02}", uid=f"uid-{number}", resource_version=0))
    text = "---\n".join(QUICKSTART.replace("name: quickstart", f"name: large-{number:02}") for number in range(80))
    body: dict[str, Any] = {"documents": [{"file": "a.yaml", "text": text}]}
    response = neighbour.post(f"{API}/diff", json=body)
    assert (response.status_code, "name fewer documents" in response.text) == (400, True), response.text[:300]
    body["documents"] = [{"file": "a.yaml", "text": QUICKSTART}]
    assert neighbour.post(f"{API}/diff", json=body).json()["items"][0]["result"]
