"""Kinds that can only be read: get and list as for any kind, and everything else refused with what to do instead."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controller.kinds.registry import Kind, discover
from tests.helpers_api import ApiStack

API = "/apis/paddock/v1alpha1"
TABLE = {"Accept": "application/json;as=Table"}
READ_ONLY = [entry for entry in discover() if entry.read_only]


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


def place(kind: Kind) -> str:
    return f"{API}/namespaces/default/{kind.plural}" if kind.namespaced else f"{API}/{kind.plural}"


@pytest.fixture(params=READ_ONLY, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    param: Kind = request.param
    return param


def test_the_kinds_that_can_only_be_read() -> None:
    assert {entry.name for entry in READ_ONLY} == {"Event", "Host", "Instance", "Volume"}


def test_writing_is_refused_with_what_to_do_instead(client: httpx.Client, kind: Kind) -> None:
    for method, name in itertools.product(("POST", "PUT", "PATCH", "DELETE"), ("", "/any")):
        if kind.deletable and method == "DELETE" and name:
            continue  # see tests/api/test_volumes.py
        if kind.patchable and method == "PATCH" and name:
            continue  # see tests/api/test_hosts.py
        answer = client.request(method, place(kind) + name, json={} if method != "DELETE" else None)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET"), (method, name)
        document = answer.json()
        assert (document["kind"], document["reason"]) == ("Status", "MethodNotAllowed")
        assert document["message"] == f"{kind.name} is read-only: {kind.read_only}"


def test_a_watch_is_refused(client: httpx.Client, kind: Kind) -> None:
    answer = client.get(place(kind), params={"watch": "true"})
    assert (answer.status_code, answer.json()["reason"]) == (405, "MethodNotAllowed")
    assert "poll instead" in answer.json()["message"]


def test_only_reading_is_described(client: httpx.Client, kind: Kind) -> None:
    description: Any = client.get("/openapi.json").json()
    routes = {
        path: set(observed)
        for path, observed in description["paths"].items()
        if path.startswith("/apis/") and f"/{kind.plural}" in path
    }
    assert len(routes) == (3 if kind.namespaced else 2)
    texts = {"get"} | ({"delete"} if kind.deletable else set()) | ({"patch"} if kind.patchable else set())
    assert all(methods == (texts if path.endswith("{name}") else {"get"}) for path, methods in routes.items())
    assert f"{kind.name}Written" not in description["components"]["schemas"]


def test_discovery_says_so(client: httpx.Client, kind: Kind) -> None:
    (observed,) = [resource for resource in client.get(API).json()["resources"] if resource["kind"] == kind.name]
    verbs = [*(["delete"] if kind.deletable else []), "get", "list", *(["patch"] if kind.patchable else [])]
    assert (observed["verbs"], observed["readOnly"]) == (verbs, kind.read_only)


def test_it_cannot_be_applied(client: httpx.Client, kind: Kind) -> None:
    text = f"apiVersion: paddock/v1alpha1\nkind: {kind.name}\nmetadata: {{name: a}}\n"
    answer = client.post(f"{API}/apply", json={"documents": [{"file": "a.yaml", "text": text}]})
    assert answer.status_code == 422
    assert f"a.yaml:2:7: kind: {kind.name} is read-only: {kind.read_only}" in answer.json()["message"]


def test_lists_and_tables(client: httpx.Client, kind: Kind) -> None:
    listed = client.get(place(kind)).json()
    assert (listed["kind"], listed["metadata"]) == (f"{kind.name}List", {"resourceVersion": "0"})
    rows = client.get(place(kind), headers=TABLE).json()
    assert len(rows["rows"]) == len(listed["items"])
    for entry in listed["items"]:
        text = f"{place(kind)}/{entry['metadata']['name']}"
        assert client.get(text).json() == entry
        assert client.get(text, headers=TABLE).json()["rows"][0]["object"]["metadata"] == entry["metadata"]
    missing = client.get(f"{place(kind)}/nope")
    assert (missing.status_code, missing.json()["reason"]) == (404, "NotFound")


def events(client: httpx.Client, **params: Any) -> list[str]:
    answer = client.get(f"{API}/namespaces/default/events", params=params)
    assert answer.status_code == 200, answer.text
    return [entry["reason"] for entry in answer.json()["items"]]


def test_events_by_fields_and_by_their_object(client: httpx.Client, api: ApiStack) -> None:
    api.apply()
    api.add_event(api.sandbox(), "Created", "container made")
    api.clock.advance(5)
    api.add_event(api.sandbox(), "Failed", "no image", "Warning")
    api.add_event(api.sandbox(), "Failed", "no image", "Warning")
    assert events(client) == ["Created", "Failed"]
    assert events(client, fieldSelector="type=Warning") == ["Failed"]
    assert events(client, fieldSelector="type!=Warning,involvedObject.kind=Sandbox") == ["Created"]
    assert events(client, fieldSelector="reason=Created,involvedObject.name=other") == []
    assert events(client, fieldSelector="metadata.namespace=team") == []
    assert events(client, kind="sandbox", name="quickstart", limit=1) == ["Failed"]
    assert events(client, uid=api.sandbox().uid, fieldSelector="type=Normal") == ["Created"]
    assert events(client, uid="other") == []
    rows = client.get(f"{API}/events", headers=TABLE).json()["rows"]
    assert rows[1]["cells"][:5] == ["0s (x2)", "Warning", "Failed", "sandbox/quickstart", "no image"]


@pytest.mark.parametrize("selector", ["nope=1", "type", "type>1", "type=a=b", ",", "spec.role=sandbox"])
def test_a_field_selector_that_cannot_be_read(client: httpx.Client, selector: str) -> None:
    answer = client.get(f"{API}/events", params={"fieldSelector": selector})
    assert (answer.status_code, "involvedObject.name" in answer.json()["message"]) == (400, True)


def test_lists_of_stored_kinds_take_several_terms_too(client: httpx.Client, api: ApiStack) -> None:
    api.apply()
    sandboxes = f"{API}/sandboxes"
    for selector, count in (
        ("metadata.name=quickstart,metadata.namespace==default", 1),
        ("metadata.name!=quickstart", 0),
        ("metadata.namespace=team", 0),
    ):
        assert len(client.get(sandboxes, params={"fieldSelector": selector}).json()["items"]) == count
