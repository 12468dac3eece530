"""The Host over HTTP: what a person says of it is patched and stored; what the machine says is read at each request."""

from collections.abc import Iterator

import httpx
import pytest

from tests.helpers_api import ApiStack

HOST = "/apis/paddock/v1alpha1/hosts/host"
MERGE = {"content-type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table"}


@pytest.fixture
def client(served: ApiStack) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as created:
        yield created


def patch(client: httpx.Client, body: object, **params: str) -> httpx.Response:
    return client.patch(HOST, json=body, headers=MERGE, params=params)


def test_a_patch_is_kept_beside_the_live_status(client: httpx.Client, served: ApiStack) -> None:
    plain = client.get(HOST).json()
    assert served.store.list("Host")[0] == [], "nothing is stored of a host that nobody changed"
    trial = patch(client, {"spec": {"schedulable": False}}, dryRun="true")
    assert (trial.status_code, trial.json()["spec"]) == (
        200,
        {"schedulable": False, "drained": False, "outOfService": False},
    )
    assert client.get(HOST).json() == plain
    body = {"metadata": {"labels": {"disk": "fast"}}, "spec": {"schedulable": False}}
    answer = patch(client, body)
    assert answer.status_code == 200, answer.text
    document = client.get(HOST).json()
    assert answer.json() == document
    assert (document["spec"], document["metadata"]["labels"]) == (
        {"schedulable": False, "drained": False, "outOfService": False},
        {"disk": "fast"},
    )
    assert (document["metadata"]["uid"], document["status"]) == (plain["metadata"]["uid"], plain["status"])
    assert client.get("/apis/paddock/v1alpha1/hosts").json()["items"] == [document]
    assert "SchedulingDisabled" in client.get(HOST, headers=TABLE).text
    (stored,) = served.store.list("Host")[0]
    assert (stored.spec, stored.status) == ({"schedulable": False, "drained": False, "outOfService": False}, {}), (
        "what the machine says is never stored"
    )
    patch(client, {"spec": {"schedulable": None}})
    assert client.get(HOST).json()["spec"] == {"schedulable": True, "drained": False, "outOfService": False}
    assert "SchedulingDisabled" not in client.get(HOST, headers=TABLE).text


def test_a_patch_of_an_older_version_is_refused(client: httpx.Client) -> None:
    before = {"resourceVersion": client.get(HOST).json()["metadata"]["resourceVersion"]}
    assert patch(client, {"metadata": before, "spec": {"schedulable": False}}).status_code == 200
    late = patch(client, {"metadata": before, "spec": {"schedulable": True}})
    assert (late.status_code, late.json()["reason"]) == (409, "Conflict")
    assert client.get(HOST).json()["spec"] == {"schedulable": False, "drained": False, "outOfService": False}


def test_wrong_fields_and_other_hosts_are_refused(client: httpx.Client, served: ApiStack) -> None:
    wrong = patch(client, {"spec": {"schedulable": "maybe", "zone": "a"}})
    assert wrong.status_code == 422
    assert {cause["field"] for cause in wrong.json()["details"]["causes"]} == {"spec.schedulable", "spec.zone"}
    answer = client.patch(f"{HOST}-2", json={"spec": {}}, headers=MERGE)
    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")
    assert patch(client, {"status": {"instances": 7}}).status_code == 422
    assert served.store.list("Host")[0] == []
