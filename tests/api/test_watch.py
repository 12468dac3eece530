"""Watches over HTTP: lines, errors, limits, and clean-up after disconnects and stalls."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from controller.service.watch.hub import BOOKMARK_SECONDS, Watches
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

SANDBOXES = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False, limits=httpx.Limits(max_connections=None))
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


@contextmanager
def watching(
    client: httpx.Client, path: str = SANDBOXES, headers: dict[str, str] | None = None, **params: Any
) -> Iterator[Iterator[dict[str, Any]]]:
    with client.stream("GET", path, params={"watch": "1", **params}, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json;stream=watch"
        yield (json.loads(line) for line in answer.iter_lines())


def told(event: dict[str, Any]) -> tuple[str, str, str]:
    meta = event["object"]["metadata"]
    return event["type"], meta.get("name", ""), meta["resourceVersion"]


def named(name: str) -> str:
    return QUICKSTART.replace("name: quickstart", f"name: {name}")


def test_a_list_says_where_to_watch_from(client: httpx.Client, served: ApiStack) -> None:
    served.apply()
    listed = client.get(SANDBOXES).json()
    with watching(client, resourceVersion=listed["metadata"]["resourceVersion"]) as events:
        served.apply(QUICKSTART.replace("512Mi", "1Gi"))
        changed = next(events)
        assert told(changed) == ("MODIFIED", "quickstart", "2")
        assert changed["object"] == client.get(f"{SANDBOXES}/quickstart").json()
        served.finish_deletion()
        assert told(next(events)) == ("DELETED", "quickstart", "3")


def test_without_a_revision_it_begins_with_what_is_there_and_a_bookmark(client: httpx.Client, served: ApiStack) -> None:
    served.apply()
    with watching(client, allowWatchBookmarks="true") as events:
        assert [told(next(events)) for _ in range(2)] == [("ADDED", "quickstart", "1"), ("BOOKMARK", "", "1")]
        served.change("quickstart", labels={"app": "x"})
        assert told(next(events)) == ("MODIFIED", "quickstart", "2")
        served.clock.advance(BOOKMARK_SECONDS)
        assert told(next(events)) == ("BOOKMARK", "", "2")


def test_it_ends_when_its_time_is_over_and_says_how_far_it_was(client: httpx.Client, served: ApiStack) -> None:
    served.apply()
    with watching(client, timeoutSeconds="1", resourceVersion="1", allowWatchBookmarks="1") as events:
        assert [told(event) for event in events] == [("BOOKMARK", "", "1")]


def test_everywhere_by_label_by_name_and_as_rows(client: httpx.Client, served: ApiStack) -> None:
    served.apply(f"{named('one')}---\n{named('two').replace('demo', 'web')}", namespace="team")
    everywhere = "/apis/paddock/v1alpha1/sandboxes"
    with watching(client, everywhere, labelSelector="app=web", timeoutSeconds="1") as events:
        assert [event["object"]["metadata"]["name"] for event in events] == ["two"]
    query = {"watch": "1", "fieldSelector": "metadata.name=one", "timeoutSeconds": "1"}
    (row,) = [json.loads(line) for line in client.get(everywhere, params=query, headers=TABLE).text.splitlines()]
    assert row["object"]["kind"] == "Table"
    assert row["object"]["rows"][0]["cells"][0] == "one"
    assert row["object"]["metadata"]["resourceVersion"] == "1"


def test_each_watcher_gets_rows_as_it_asked(client: httpx.Client, served: ApiStack) -> None:
    served.apply()
    plain = {"Accept": "application/json;as=Table"}
    with (
        watching(client, headers=TABLE, resourceVersion="1") as kubectl,
        watching(client, headers=plain, resourceVersion="1") as ours,
        watching(client, headers=plain, resourceVersion="1", labelSelector="app=web") as by_label,
        watching(client, resourceVersion="1") as objects,
    ):
        served.change("quickstart", labels={"app": "web"})
        observed = [next(group) for group in (kubectl, ours, by_label, objects)]
    assert [document["type"] for document in observed] == ["MODIFIED", "MODIFIED", "ADDED", "MODIFIED"]
    versions = [document["object"]["apiVersion"] for document in observed]
    assert versions == ["meta.k8s.io/v1", "paddock/v1alpha1", "paddock/v1alpha1", "paddock/v1alpha1"]
    assert observed[1]["object"] == observed[2]["object"]
    assert observed[1]["object"]["rows"][0]["cells"] == observed[0]["object"]["rows"][0]["cells"]
    assert observed[3]["object"]["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize(
    ("params", "code", "reason", "words"),
    [
        ({"resourceVersion": "99"}, 410, "Expired", "list again"),
        ({"resourceVersion": "-1"}, 400, "BadRequest", "resourceVersion"),
        ({"resourceVersion": "9" * 30}, 400, "BadRequest", "resourceVersion"),
        ({"labelSelector": "a b"}, 400, "BadRequest", "can't read `a b`"),
        ({"fieldSelector": "spec.x=1"}, 400, "BadRequest", "metadata.name=NAME"),
        ({"timeoutSeconds": "-1"}, 400, "BadRequest", "timeoutSeconds"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    client: httpx.Client, params: dict[str, str], code: int, reason: str, words: str
) -> None:
    answer = client.get(SANDBOXES, params={"watch": "1", **params})
    assert (answer.status_code, answer.json()["reason"]) == (code, reason)
    assert words in answer.json()["message"]


def test_a_pruned_revision_is_410(client: httpx.Client, served: ApiStack) -> None:
    for name in ("one", "two", "three"):
        served.apply(named(name))
    served.store.prune(keep_changes=1, events_before=0)
    answer = client.get(SANDBOXES, params={"watch": "1", "resourceVersion": "1"})
    assert (answer.status_code, answer.json()["kind"], answer.json()["reason"]) == (410, "Status", "Expired")


def limited(api: ApiStack, **options: Any) -> Watches:
    """Replace the API's hub by one with these limits, before it is served."""
    hub: Watches = api.services.watches
    for name, value in options.items():
        setattr(hub, f"_{name}", value)
    return hub


def test_too_many_are_refused_and_do_not_hinder_other_requests(client: httpx.Client, served: ApiStack) -> None:
    hub = limited(served, most=60)
    served.apply()
    query = {"watch": "1"}
    opened = [client.send(client.build_request("GET", SANDBOXES, params=query), stream=True) for _ in range(60)]
    response = client.get(SANDBOXES, params=query)
    assert (response.status_code, response.json()["reason"]) == (429, "TooManyRequests")
    assert client.get(SANDBOXES, timeout=30).status_code == 200
    for entry in opened:
        entry.close()
    wait_for("all are freed", lambda: hub.count == 0)
    with watching(client) as events:
        assert told(next(events))[1] == "quickstart"


def test_disconnected_watch_ends_within_2_seconds(client: httpx.Client, served: ApiStack) -> None:
    hub, threads = served.services.watches, threading.active_count()
    with watching(client, timeoutSeconds="600"):
        wait_for("it is open", lambda: hub.count == 1)
    wait_for("it is freed", lambda: hub.count == 0)
    assert threading.active_count() <= threads + 3  # the hub's thread, and those that open watches


def test_a_client_that_does_not_read_is_cut_and_others_get_everything(client: httpx.Client, served: ApiStack) -> None:
    hub = limited(served, ahead=20)
    served.apply()
    with socket.socket(socket.AF_UNIX) as stalled, watching(client, resourceVersion="1") as events:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        stalled.connect(str(served.socket))
        stalled.sendall(f"GET {SANDBOXES}?watch=1 HTTP/1.1\r\nHost: paddock\r\n\r\n".encode())
        wait_for("both watch", lambda: hub.count == 2)
        number = 0
        while hub.count == 2:
            number += 1
            served.change(annotations={"big": "x" * 200_000, "number": str(number)})
            assert next(events)["object"]["metadata"]["annotations"]["number"] == str(number)
            assert number < 500
        assert hub.count == 1


def test_a_watch_that_fell_behind_says_410_in_its_last_line(client: httpx.Client, served: ApiStack) -> None:
    served.apply()
    with watching(client, resourceVersion="1") as events:
        hub = served.services.watches
        wait_for("it is open", lambda: hub.count == 1)
        (watch,) = hub._open
        from controller.service.errors import Gone

        watch.end(Gone("fell behind; list again"))
        last = next(events)
        assert (last["type"], last["object"]["kind"], last["object"]["code"]) == ("ERROR", "Status", 410)
        assert list(events) == []


def test_stopping_the_daemon_ends_watches_cleanly(api: ApiStack) -> None:
    server = api.server()
    server.start()
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(api.socket), verify=False), base_url="http://paddock", timeout=60
    ) as client:
        with watching(client) as events:
            api.services.watches.close()
            assert list(events) == []
        assert client.get(SANDBOXES, params={"watch": "1"}).status_code == 503
    server.stop()
