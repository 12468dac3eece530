"""propagationPolicy of a DELETE: in the query, and in the body as Kubernetes' clients send it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.helpers_api import QUICKSTART, ApiStack

SANDBOX = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/quickstart"
OTHER = QUICKSTART.replace("name: quickstart", "name: other")
OWNED = OTHER.replace("name: other", "name: other\n  ownerReferences: [{kind: Sandbox, name: quickstart}]")


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


@pytest.mark.parametrize(
    ("query", "body", "foreground"),
    [
        ({}, None, False),
        ({"propagationPolicy": "Foreground"}, None, True),
        ({}, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, True),
        ({}, {"propagationPolicy": "Background"}, False),
        ({}, {}, False),
    ],
)
def test_query_or_body(client: httpx.Client, api: ApiStack, query: Any, body: Any, foreground: bool) -> None:
    api.apply(f"{QUICKSTART}---\n{OWNED}")
    answer = client.request("DELETE", SANDBOX, params=query, json=body)
    assert answer.status_code == 200
    assert ("foregroundDeletion" in answer.json()["metadata"]["finalizers"]) is foreground
    assert api.sandbox("other").deleted_at is not None


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ({"propagationPolicy": "Sideways"}, None),
        ({"propagationPolicy": "Orphan"}, {"propagationPolicy": "Foreground"}),
        ({}, {"preconditions": {"uid": "a"}}),
        ({}, {"dryRun": ["Some"]}),
    ],
)
def test_what_is_not_served_is_refused_and_nothing_deleted(
    client: httpx.Client, api: ApiStack, query: Any, body: Any
) -> None:
    api.apply()
    answer = client.request("DELETE", SANDBOX, params=query, json=body)
    assert (400 <= answer.status_code < 500, answer.json()["kind"]) == (True, "Status")
    assert api.sandbox().deleted_at is None


def test_a_collection_cascades_too(client: httpx.Client, api: ApiStack) -> None:
    api.apply(f"{QUICKSTART}---\n{OWNED}".replace("labels: {app: demo}", "labels: {app: web}", 1))
    options = {"labelSelector": "app=web", "propagationPolicy": "Orphan"}
    client.delete(SANDBOX.rpartition("/")[0], params=options).raise_for_status()
    assert api.sandbox().deleted_at is not None
    assert (api.sandbox("other").deleted_at, api.sandbox("other").owner_references) == (None, ())
