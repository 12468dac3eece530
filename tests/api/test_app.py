"""The HTTP API over its socket: routes, error bodies, limits, metrics."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.helpers_api import QUICKSTART, ApiStack
from tests.statements import traced

API = "/apis/paddock/v1alpha1"
SANDBOXES = f"{API}/namespaces/default/sandboxes"
JSON = {"Content-Type": "application/json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


@pytest.fixture
def statements() -> Iterator[list[str]]:
    with traced() as ran:
        yield ran


def apply(client: httpx.Client, text: str = QUICKSTART, **options: Any) -> Any:
    return client.post(f"{API}/apply", json={"documents": [{"file": "app.yaml", "text": text}], **options})


def test_apply_answers_what_became_of_each_document(client: httpx.Client) -> None:
    (item,) = apply(client).json()["items"]
    assert item["resource"] == "sandbox.paddock"
    assert item["result"] == "created"
    assert item["metadata"] == {
        "name": "quickstart",
        "namespace": "default",
        "uid": "00000000-0000-4000-8000-000000000001",
        "resourceVersion": "1",
        "generation": 1,
    }
    assert apply(client).json()["items"][0]["result"] == "unchanged"


def test_a_bad_document_is_a_status_with_every_cause_and_its_place(client: httpx.Client) -> None:
    answer = apply(client, QUICKSTART.replace("512Mi", "512m"))
    assert answer.status_code == 422
    status = answer.json()
    assert (status["kind"], status["status"], status["reason"], status["code"]) == ("Status", "Failure", "Invalid", 422)
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": "`512m` is 0.512 bytes; write `512Mi`",
            "field": "spec.resources.limits.memory",
            "file": "app.yaml",
            "line": 11,
            "column": 33,
        }
    ]


def test_dry_run_and_namespace(client: httpx.Client, api: ApiStack) -> None:
    assert apply(client, dryRun=True).json()["items"][0]["result"] == "created"
    assert client.get(SANDBOXES).json()["items"] == []
    apply(client, namespace="team")
    assert api.sandbox(namespace="team").name == "quickstart"
    assert [entry["metadata"]["namespace"] for entry in client.get(f"{API}/sandboxes").json()["items"]] == ["team"]


def test_one_object_and_lists(client: httpx.Client, api: ApiStack) -> None:
    apply(client)
    document = client.get(f"{SANDBOXES}/quickstart").json()
    assert (document["apiVersion"], document["kind"]) == ("paddock/v1alpha1", "Sandbox")
    listed = client.get(SANDBOXES).json()
    assert (listed["kind"], listed["items"]) == ("SandboxList", [document])
    assert listed["metadata"]["resourceVersion"] == str(api.store.revision())
    assert client.get(SANDBOXES, params={"labelSelector": "app=x"}).json()["items"] == []


def test_a_list_in_pages(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        apply(client, QUICKSTART.replace("name: quickstart", f"name: {name}"))
    for headers, field in (({}, "items"), (TABLE, "rows")):
        first = client.get(SANDBOXES, params={"limit": 2}, headers=headers).json()
        document = client.get(
            SANDBOXES, params={"limit": 2, "continue": first["metadata"]["continue"]}, headers=headers
        ).json()
        content = client.get(SANDBOXES, headers=headers).json()
        assert first[field] + document[field] == content[field]
        assert (len(first[field]), document["metadata"]) == (2, content["metadata"])
    assert client.get(SANDBOXES, params={"continue": "x"}).json()["reason"] == "BadRequest"


def test_tables_for_those_who_ask(client: httpx.Client) -> None:
    apply(client)
    for path in (SANDBOXES, f"{SANDBOXES}/quickstart", f"{API}/sandboxes"):
        document = client.get(path, headers=TABLE).json()
        assert document["kind"] == "Table"
        assert document["rows"][0]["cells"][0] == "quickstart"


def test_delete(client: httpx.Client, api: ApiStack) -> None:
    apply(client)
    assert "deletionTimestamp" in client.delete(f"{SANDBOXES}/quickstart").json()["metadata"]
    api.finish_deletion()
    answer = client.delete(f"{SANDBOXES}/quickstart")
    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    assert answer.json()["details"] == {"kind": "sandboxes", "name": "quickstart"}
    apply(client)
    assert len(client.delete(SANDBOXES, params={"labelSelector": "app=demo"}).json()["items"]) == 1


def test_discovery_names_the_kinds_and_their_words(client: httpx.Client) -> None:
    (observed,) = [resource for resource in client.get(API).json()["resources"] if resource["kind"] == "Sandbox"]
    assert observed == {
        "name": "sandboxes",
        "singularName": "sandbox",
        "shortNames": ["sb"],
        "kind": "Sandbox",
        "namespaced": True,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "categories": ["all"],
    }


def test_events_of_one_object(client: httpx.Client, api: ApiStack) -> None:
    apply(client)
    api.add_event(api.sandbox(), "Created", "container made")
    (observed,) = client.get(f"{API}/namespaces/default/events", params={"kind": "Sandbox"}).json()["items"]
    assert observed["involvedObject"]["name"] == "quickstart"
    assert (observed["reason"], observed["count"], observed["lastTimestamp"]) == ("Created", 1, "2023-11-14T22:13:20Z")
    assert client.get(f"{API}/events", params={"name": "other"}).json()["items"] == []
    assert client.get(f"{API}/events", headers=TABLE).json()["rows"][0]["cells"][3] == "sandbox/quickstart"


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "words"),
    [
        ("GET", "/nope", 404, "NotFound", "nothing is served at /nope"),
        ("GET", f"{API}/namespaces/default/pods", 404, "NotFound", "nothing is served at"),
        ("GET", f"{SANDBOXES}/nope", 404, "NotFound", "sandboxes `nope` not found in namespace `default`"),
        ("PUT", SANDBOXES, 405, "MethodNotAllowed", "PUT is not served"),
        ("GET", f"{SANDBOXES}?labelSelector=a%20b", 400, "BadRequest", "can't read `a b`"),
        ("GET", f"{API}/events?limit=0", 400, "BadRequest", "limit"),
        ("POST", f"{API}/apply", 400, "BadRequest", "body"),
        ("GET", f"{SANDBOXES}/nope/logs", 404, "NotFound", "not found"),
        ("GET", f"{SANDBOXES}/nope/logs?tailLines=-1", 400, "BadRequest", "tailLines"),
    ],
)
def test_errors_are_statuses(client: httpx.Client, method: str, path: str, code: int, reason: str, words: str) -> None:
    answer = client.request(method, path)
    status = answer.json()
    assert (answer.status_code, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)
    assert words in status["message"]


def test_a_request_that_is_too_large_is_refused_whether_or_not_it_says_so(client: httpx.Client) -> None:
    announced = client.post(f"{API}/apply", content=b"x" * ((12 << 20) + 1), headers=JSON)
    streamed = client.post(f"{API}/apply", content=iter([b"x" * (1 << 20)] * 13), headers=JSON)
    for answer in (announced, streamed):
        assert (answer.status_code, answer.json()["reason"]) == (413, "RequestEntityTooLarge")


def test_a_store_that_fails_is_503_in_words(client: httpx.Client, api: ApiStack) -> None:
    api.store.close()
    answer = client.get(SANDBOXES)
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert "the store can't be used now" in answer.json()["message"]


def test_health_is_the_process_and_readiness_is_every_check_by_name(client: httpx.Client, api: ApiStack) -> None:
    assert client.get("/healthz").text == "ok"
    ready = client.get("/readyz")
    assert (ready.status_code, ready.text) == (200, "[+]store ok\n[+]engine ok\nready\n")
    api.checks[1] = ("engine", "connection refused")
    broken = client.get("/readyz")
    assert (broken.status_code, broken.text) == (
        503,
        "[+]store ok\n[-]engine: connection refused\nnot ready: engine\n",
    )
    assert client.get("/healthz").status_code == 200


def test_version_and_description(client: httpx.Client) -> None:
    assert client.get("/version").json()["apiVersion"] == "paddock/v1alpha1"
    paths = client.get("/openapi.json").json()["paths"]
    assert f"{API}/namespaces/{{namespace}}/sandboxes/{{name}}" in paths
    assert f"{API}/apply" in paths


def test_requests_are_counted_by_the_template_of_their_path(client: httpx.Client, api: ApiStack) -> None:
    client.get(f"{SANDBOXES}/nope")
    client.get("/nowhere/at/all")
    client.get("/healthz")
    route = f"{API}/namespaces/{{namespace}}/sandboxes/{{name}}"
    assert api.meter.counted[0] == ("paddock_api_requests_total", {"method": "GET", "route": route, "code": "404"})
    assert api.meter.counted[1] == ("paddock_api_request_duration_seconds", {"method": "GET", "route": route})
    assert [labels["route"] for _, labels in api.meter.counted[2::2]] == ["unmatched", "/healthz"]


def test_a_defect_is_a_500_that_tells_the_client_nothing_of_it(client: httpx.Client, api: ApiStack) -> None:
    api.checks = [("store", "", "secret detail")]  # type: ignore[list-item]  # unpacking it raises
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert "secret" not in answer.text


def test_a_list_is_read_once_between_writes(statements: list[str], client: httpx.Client) -> None:
    apply(client)
    first = client.get(SANDBOXES)
    statements.clear()
    again = client.get(SANDBOXES)
    assert again.json() == first.json()
    assert again.headers["content-type"] == first.headers["content-type"] == "application/json"
    assert len(statements) == 1, statements  # of the revision
    assert client.get(f"{API}/sandboxes").json()["items"] == first.json()["items"]
    apply(client, QUICKSTART.replace("name: quickstart", "name: other"))
    assert [entry["metadata"]["name"] for entry in client.get(SANDBOXES).json()["items"]] == ["other", "quickstart"]
    assert client.get(f"{API}/namespaces/none/sandboxes").json()["items"] == []
