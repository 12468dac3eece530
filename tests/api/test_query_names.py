"""Query parameters: a route knows its own, and those that kubectl sends; others are refused with advice."""

from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import unix_connect

from tests.api.listeners import API
from tests.helpers_api import ApiStack

ALL = f"{API}/namespaces/default/sandboxes"
SANDBOX = f"{ALL}/quickstart"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def client(running_api: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(running_api.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


@pytest.mark.parametrize(
    ("method", "path", "advice"),
    [
        ("GET", f"{SANDBOX}/logs?tail=2", "tail: not a query parameter of this request; did you mean `tailLines`?"),
        ("GET", f"{ALL}?labelselector=app%3Dweb", "did you mean `labelSelector`?"),
        ("GET", f"{ALL}?page=2", "known: allowWatchBookmarks, continue, fieldSelector"),
        ("GET", f"{API}/events?type=Warning", "type: not a query parameter"),
        ("GET", f"{API}/quotas?lable=a", "lable: not a query parameter"),
        ("GET", f"{SANDBOX}/why?verbose=1", "verbose: not a query parameter of this request; known: pretty, timeout"),
        ("GET", f"{API}/audit?since=3", "did you mean `sinceTime`?"),
        ("GET", "/version?short=1", "short: not a query parameter"),
        ("DELETE", f"{ALL}?fieldSelector=metadata.name%3Dother", "fieldSelector: not a query parameter"),
        ("GET", f"{SANDBOX}?dryRun=All", "send the document to `apply`"),
        ("POST", f"{SANDBOX}/exec?command=true", "command: not a query parameter"),
    ],
)
def test_unknown_parameter_is_refused(
    client: httpx.Client, running_api: ApiStack, method: str, path: str, advice: str
) -> None:
    body = {"command": ["true"]} if path.startswith(f"{SANDBOX}/exec") else None
    answer = client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest"), answer.text
    assert advice in answer.json()["message"]
    assert answer.json()["details"]["causes"][0]["field"] in path
    assert running_api.sandbox().deleted_at is None
    assert not running_api.streams.asked


def test_many_unknown_parameters_are_named_within_bounds(client: httpx.Client) -> None:
    answer = client.get(f"{SANDBOX}?{'x' * 4000}=1&" + "&".join(f"k{number}=1" for number in range(300)))
    assert answer.status_code == 400
    assert len(answer.content) < 4096
    assert "and 296 more" in answer.json()["message"]


def test_websocket_with_unknown_parameter_is_refused(client: httpx.Client, running_api: ApiStack) -> None:
    for path in (f"{SANDBOX}/exec?comand=true", f"{SANDBOX}/portforward?prot=80"):
        with pytest.raises(InvalidStatus, match="400"):
            unix_connect(str(running_api.socket), uri=f"ws://paddock{path}")
    assert not running_api.streams.asked


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{API}?timeout=32s"),
        ("GET", f"{ALL}?limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan&timeoutSeconds=60&pretty=true"),
        ("GET", f"{ALL}?includeObject=Object&sendInitialEvents=false"),
        ("GET", f"{API}/events?limit=500"),
        ("GET", f"{API}/namespaces/default/volumes?limit=500"),
        ("GET", f"{SANDBOX}?resourceVersion=0"),
        ("GET", "/readyz?verbose"),
        ("PATCH", f"{SANDBOX}?fieldManager=kubectl-edit&fieldValidation=Strict&force=true"),
        ("DELETE", f"{SANDBOX}?gracePeriodSeconds=0&propagationPolicy=Background"),
    ],
)
def test_parameters_of_kubectl_are_known(client: httpx.Client, method: str, path: str) -> None:
    patch = b'{"spec": {"priority": 3}}' if method == "PATCH" else None
    answer = client.request(method, path, content=patch, headers=MERGE if patch else {})
    assert answer.status_code == 200, answer.text


def test_server_side_dry_run_writes_nothing(client: httpx.Client, running_api: ApiStack) -> None:
    answer = client.patch(f"{SANDBOX}?dryRun=All", content='{"spec": {"priority": 3}}', headers=MERGE)
    assert (answer.status_code, answer.json()["spec"]["priority"]) == (200, 3)
    assert running_api.sandbox().spec.get("priority", 0) != 3


def test_streaming_list_falls_back_to_list_and_watch(client: httpx.Client) -> None:
    answer = client.get(f"{ALL}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true")
    assert answer.status_code == 400
    assert "list, then watch" in answer.json()["message"]
