"""The routes PATCH and diff: content types, codes, and bodies."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.helpers_api import QUICKSTART, ApiStack

ONE = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"


@pytest.fixture
def http(served: ApiStack) -> Iterator[httpx.Client]:
    served.apply()
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(base_url="http://paddock", transport=transport, timeout=60) as client:
        yield client


def patch(http: httpx.Client, body: str, type_: str = MERGE, **params: str) -> Any:
    return http.patch(ONE, content=body, headers={"Content-Type": type_}, params=params)


def test_both_types(http: httpx.Client, api: ApiStack) -> None:
    answer = patch(http, '{"spec": {"runState": "Paused"}}', f"{MERGE}; charset=utf-8")
    assert (answer.status_code, answer.json()["spec"]["runState"]) == (200, "Paused")
    answer = patch(http, '[{"op": "replace", "path": "/spec/runState", "value": "Running"}]', JSON)
    assert (answer.status_code, answer.json()["metadata"]["generation"]) == (200, 3)
    assert patch(http, '{"spec": {"runState": "Paused"}}', dryRun="true").json()["spec"]["runState"] == "Paused"
    assert api.sandbox().spec["runState"] == "Running"


@pytest.mark.parametrize(
    ("body", "type_", "code", "reason"),
    [
        ("{}", "application/strategic-merge-patch+json", 415, "UnsupportedMediaType"),
        ("{}", "application/json", 415, "UnsupportedMediaType"),
        ("{", MERGE, 400, "BadRequest"),
        ("[" * 100_000, MERGE, 400, "BadRequest"),
        ('{"spec": {"a": NaN}}', MERGE, 400, "BadRequest"),
        ("\xff", MERGE, 400, "BadRequest"),
        ("[]", MERGE, 400, "BadRequest"),
        ('{"spec":' * 3000 + "1" + "}" * 3000, MERGE, 400, "BadRequest"),
        ("{}", JSON, 400, "BadRequest"),
        ('{"spec": {"runState": "x"}}', MERGE, 422, "Invalid"),
        ('{"metadata": {"resourceVersion": "999"}}', MERGE, 409, "Conflict"),
        ('[{"op": "test", "path": "/spec/runState", "value": "Paused"}]', JSON, 409, "Conflict"),
    ],
)
def test_refusals_are_status_bodies(http: httpx.Client, body: str, type_: str, code: int, reason: str) -> None:
    answer = patch(http, body, type_)
    assert (answer.status_code, answer.json()["kind"], answer.json()["reason"]) == (code, "Status", reason)


def test_server_side_apply_says_what_to_use(http: httpx.Client) -> None:
    answer = patch(http, "{}", "application/apply-patch+yaml", fieldManager="kubectl", force="true")
    assert (answer.status_code, answer.json()["reason"]) == (415, "UnsupportedMediaType")
    assert "leave --server-side out" in answer.json()["message"]


def test_copies_of_copies_are_refused_before_they_fill_the_memory(http: httpx.Client, api: ApiStack) -> None:
    notes = "/metadata/annotations"
    large = {"op": "add", "path": f"{notes}/a", "value": "x" * 200_000}
    doubling = [large] + [{"op": "copy", "from": notes, "path": f"{notes}/a{number}"} for number in range(60)]
    answer = patch(http, json.dumps(doubling), JSON)
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    assert "copies more than" in answer.json()["message"]
    assert api.sandbox().annotations == {}


def test_a_tower_of_additions_is_refused_in_words(http: httpx.Client) -> None:
    tower = [{"op": "add", "path": "/spec" + "/a" * height, "value": {}} for height in range(1, 1000)]
    answer = patch(http, json.dumps(tower), JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["reason"] in ("BadRequest", "Invalid")


def test_what_is_not_there_is_not_found(http: httpx.Client) -> None:
    answer = http.patch(f"{ONE}x", content="{}", headers={"Content-Type": MERGE})
    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")


def test_diff_shows_both_sides_and_writes_nothing(http: httpx.Client, api: ApiStack) -> None:
    text = QUICKSTART.replace("512Mi", "1Gi") + "---\n" + QUICKSTART.replace("name: quickstart", "name: other")
    answer = http.post("/apis/paddock/v1alpha1/diff", json={"documents": [{"text": text}]})
    changed, created = answer.json()["items"]
    assert (changed["result"], created["result"], created["before"]) == ("configured", "created", None)
    assert changed["changes"] == [{"field": "spec.resources.limits.memory", "before": "512Mi", "after": "1Gi"}]
    assert "uid" not in created["after"]["metadata"]
    assert [changed[entry]["spec"]["resources"]["limits"]["memory"] for entry in ("before", "after")] == [
        "512Mi",
        "1Gi",
    ]
    assert len(api.store.list("Sandbox")[0]) == 1
    assert api.woken == [1]


def test_diff_of_a_replacement_shows_removals(http: httpx.Client, api: ApiStack) -> None:
    env = '{"spec": {"template": {"env": [{"name": "A", "value": "1"}]}}}'  # by a patch: apply leaves it alone
    version = patch(http, env).json()["metadata"]["resourceVersion"]
    documents = [{"file": "panel", "text": QUICKSTART}]
    url = "/apis/paddock/v1alpha1/diff"
    assert http.post(url, json={"documents": documents}).json()["items"][0]["result"] == "unchanged"
    [observed] = http.post(url, json={"documents": documents, "replace": True}).json()["items"]
    assert [change["field"] for change in observed["changes"]] == ["spec.template.env"]
    assert observed["after"]["spec"]["template"]["env"] == []
    document = {"metadata": {"resourceVersion": version}, "spec": observed["after"]["spec"]}
    assert patch(http, json.dumps(document)).json()["spec"] == observed["after"]["spec"]
    stale = QUICKSTART.replace("metadata:", f'metadata:\n  resourceVersion: "{version}"')
    answer = http.post(url, json={"documents": [{"file": "panel", "text": stale}], "replace": True})
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")


def test_a_plan_needs_a_loop_that_has_looked(http: httpx.Client) -> None:
    answer = http.post("/apis/paddock/v1alpha1/diff", json={"documents": [{"text": QUICKSTART}], "plan": True})
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")


def test_they_are_in_the_description(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    first = paths["/apis/paddock/v1alpha1/namespaces/{namespace}/sandboxes/{name}"]["patch"]
    assert set(first["requestBody"]["content"]) == {MERGE, JSON}
    assert "/apis/paddock/v1alpha1/diff" in paths
