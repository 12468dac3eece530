"""Each request has a trace id: its answer names it, and every log line written for it bears it."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import httpx
import pytest
import structlog
from websockets.exceptions import InvalidStatus
from websockets.sync.client import unix_connect

from tests.helpers_api import QUICKSTART, ApiStack
from tests.plain_logs import configure_plain_logs

API = "/apis/paddock/v1alpha1"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


@pytest.fixture
def lines(client: httpx.Client) -> list[MutableMapping[str, Any]]:
    """Capture log events from now on, with context fields."""
    capture = structlog.testing.LogCapture()
    configure_plain_logs(structlog.contextvars.merge_contextvars, capture)
    return capture.entries


def apply(client: httpx.Client, text: str = QUICKSTART, headers: dict[str, str] | None = None) -> httpx.Response:
    return client.post(f"{API}/apply", json={"documents": [{"file": "app.yaml", "text": text}]}, headers=headers)


def test_a_callers_id_is_on_the_answer_and_on_the_log_lines(client: httpx.Client, lines: list[Any]) -> None:
    assert apply(client, headers=PARENT).headers["X-Trace-Id"] == TRACE
    assert [(line["event"], line["trace_id"]) for line in lines] == [("created", TRACE)]


def test_without_one_each_request_has_an_id_of_its_own(client: httpx.Client, lines: list[Any]) -> None:
    first, second = apply(client), apply(client, QUICKSTART.replace("demo", "other"))
    x_trace_ids = [response.headers["X-Trace-Id"] for response in (first, second)]
    assert [line["trace_id"] for line in lines] == x_trace_ids
    assert x_trace_ids[0] != x_trace_ids[1]


def test_refusals_and_what_is_not_there_name_it_too(client: httpx.Client) -> None:
    for path in ("/healthz", f"{API}/namespaces/default/sandboxes/none", "/nothing"):
        assert client.get(path, headers=PARENT).headers["X-Trace-Id"] == TRACE
    assert apply(client, "kind: Nothing", PARENT).headers["X-Trace-Id"] == TRACE
    large = client.post(f"{API}/apply", json="x" * (13 << 20), headers=PARENT)
    assert (large.status_code, large.headers["X-Trace-Id"]) == (413, TRACE)


def test_a_defect_of_ours_is_found_in_the_log_by_it(
    client: httpx.Client, served: ApiStack, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(served.services.objects, "get", broken)
    answer = client.get(f"{API}/namespaces/default/sandboxes/quickstart", headers=PARENT)
    assert (answer.status_code, answer.headers["X-Trace-Id"]) == (500, TRACE)
    assert [(line["event"], line["trace_id"]) for line in lines] == [("request failed", TRACE)]


def test_a_websocket_is_a_request_like_others(served: ApiStack) -> None:
    served.apply()
    sandbox = served.sandbox()
    url = "ws://paddock" + f"{API}/namespaces/default/sandboxes/%s/exec?command=true"
    with (
        pytest.raises(InvalidStatus) as refusal,
        unix_connect(str(served.socket), url % "none", additional_headers=PARENT),
    ):
        pass
    assert refusal.value.response.headers["X-Trace-Id"] == TRACE
    served.view.show(sandbox)
    with unix_connect(str(served.socket), url % sandbox.name, additional_headers=PARENT) as socket:
        assert socket.response is not None
        assert socket.response.headers["X-Trace-Id"] == TRACE
