"""POST and PUT: one object, created or replaced by those who know what they replace."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paddock import Invalid, Paddock
from tests.helpers_api import ApiStack

SANDBOXES = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"
SANDBOX = f"{SANDBOXES}/box"
Client = httpx.Client


def body(name: str = "box", **parts: Any) -> dict[str, Any]:
    document = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name, "labels": {"app": "a"}}}
    return {**document, "spec": {"template": {"image": "paddock/python:1"}}, **parts}


@pytest.fixture
def client(served: ApiStack) -> Iterator[Client]:
    with Client(
        transport=httpx.HTTPTransport(uds=str(served.socket), verify=False), base_url="http://paddock", timeout=60
    ) as created:
        yield created


def test_create(client: Client, served: ApiStack) -> None:
    answer = client.post(SANDBOXES, json=body(status={"restartCount": 7}))
    assert (answer.status_code, answer.json()) == (201, client.get(SANDBOX).json())
    stored = served.sandbox("box")
    assert (stored.generation, stored.finalizers, stored.last_applied) == (1, ("paddock/container",), None)
    assert (stored.status, stored.spec["restartPolicy"], served.woken) == ({}, "Always", [1])


def test_create_what_is_there_already(client: Client) -> None:
    client.post(SANDBOXES, json=body())
    answer = client.post(SANDBOXES, json=body())
    assert (answer.status_code, answer.json()["reason"]) == (409, "AlreadyExists")
    assert answer.json()["details"] == {"kind": "sandboxes", "name": "box"}


def test_replace(client: Client, served: ApiStack) -> None:
    client.post(SANDBOXES, json=body())
    served.change("box", status={"restartCount": 2})
    read = client.get(SANDBOX).json()
    read["spec"]["runState"] = "Suspended"
    del read["metadata"]["labels"]
    read["status"] = {"restartCount": 9}
    answer = client.put(SANDBOX, json=read)
    assert answer.status_code == 200
    stored = served.sandbox("box")
    assert (stored.spec["runState"], stored.labels, stored.generation) == ("Suspended", {}, 2)
    assert stored.status == {"restartCount": 2}
    document = client.put(SANDBOX, json=answer.json()).json()
    assert document["metadata"]["resourceVersion"] == answer.json()["metadata"]["resourceVersion"]


def test_replace_what_was_changed_since(client: Client, served: ApiStack) -> None:
    read = client.post(SANDBOXES, json=body()).json()
    served.change("box", labels={"app": "other"})
    answer = client.put(SANDBOX, json=read)
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
    assert "was changed since (it is at 2); read it again" in answer.json()["message"]
    read["metadata"] |= {"resourceVersion": "2", "uid": "another"}
    assert "was deleted and recreated" in client.put(SANDBOX, json=read).json()["message"]
    assert served.sandbox("box").labels == {"app": "other"}


def test_of_two_writers_that_read_the_same_one_wins(client: Client) -> None:
    read = client.post(SANDBOXES, json=body()).json()
    codes = [client.put(SANDBOX, json={**read, "spec": body()["spec"] | {"runState": entry}}).status_code
             for entry in ("Suspended", "Paused")]  # fmt: skip
    assert codes == [200, 409]


@pytest.mark.parametrize(
    ("method", "path", "sent", "code", "words"),
    [
        ("PUT", SANDBOX, body(), 422, "is required to replace an object"),
        ("PUT", SANDBOX, body(metadata={"name": "box", "resourceVersion": "1"}), 404, "not found"),
        ("PUT", SANDBOX, body("other"), 400, "make them agree"),
        ("POST", SANDBOXES, body(metadata={"name": "box", "resourceVersion": "1"}), 400, "leave them out"),
        ("POST", SANDBOXES, body(metadata={"name": "box", "namespace": "team"}), 422, "metadata.namespace"),
        ("POST", SANDBOXES, body(kind="Sandbix"), 422, "did you mean `Sandbox`?"),
        ("POST", SANDBOXES, body(spec={"template": {"imgae": "x"}}), 422, "did you mean `image`?"),
        ("POST", SANDBOXES, [], 422, "must be a mapping"),
    ],
)
def test_what_cannot_be_written_is_said_in_words(
    client: Client, method: str, path: str, sent: Any, code: int, words: str
) -> None:
    answer = client.request(method, path, json=sent)
    assert (answer.status_code, answer.json()["kind"]) == (code, "Status")
    assert words in answer.json()["message"]


@pytest.mark.parametrize("namespace", ["UPPER", "*", "team-%1b[2J", "x" * 20_000])
def test_no_way_in_leads_to_what_is_no_namespace(client: Client, served: ApiStack, namespace: str) -> None:
    answer = client.post(SANDBOXES.replace("default", namespace), json=body())
    assert answer.status_code == 422
    for door in ("apply", "diff"):
        document = {"documents": [{"text": json.dumps(body())}], "namespace": f"{namespace}/../a"}
        answer = client.post(f"/apis/paddock/v1alpha1/{door}", json=document)
        assert (answer.status_code, len(answer.text) < 2000) == (422, True)
    assert not served.store.list("Sandbox")[0]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 5000, b"a: &a [*a]"])
def test_a_body_that_cannot_be_read_is_no_defect(client: Client, content: bytes) -> None:
    answer = client.post(SANDBOXES, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


def test_two_documents_are_too_many(client: Client) -> None:
    text = "---\n".join(json.dumps(body(name)) + "\n" for name in ("a", "b"))
    answer = client.post(SANDBOXES, content=text, headers={"Content-Type": "application/yaml"})
    assert "must be one Sandbox, not 2" in answer.json()["message"]


def test_what_policy_refuses_and_what_is_being_deleted(client: Client, served: ApiStack) -> None:
    read = client.post(SANDBOXES, json=body()).json()
    served.refusals.append(("spec.template.user", "root is not allowed here"))
    answer = client.put(SANDBOX, json=read)
    assert (answer.status_code, answer.json()["details"]["causes"][0]["field"]) == (422, "spec.template.user")
    served.refusals.clear()
    document = client.delete(SANDBOX).json()
    answer = client.put(SANDBOX, json=document)
    assert (answer.status_code, "is being deleted" in answer.json()["message"]) == (409, True)


def test_only_a_written_body_has_positions(client: Client) -> None:
    """Programs write JSON: nobody finds a column of it. Where it is broken, nothing else tells the place."""
    wrong = body(spec={"template": {"image": "paddock/python:1"}, "resources": {"limits": {"memory": "512m"}}})
    memory = "spec.resources.limits.memory: `512m` is 0.512 bytes; write `512Mi`"
    by_program = client.post(SANDBOXES, json=wrong).json()
    assert by_program["message"] == f"1 problem; nothing was changed\n{memory}"
    assert "file" not in by_program["details"]["causes"][0]
    yaml = {"Content-Type": "application/yaml"}
    by_people = client.post(SANDBOXES, content=json.dumps(wrong, indent=1), headers=yaml).json()
    assert by_people["message"] == f"1 problem; nothing was changed\nbody:16:15: {memory}"
    broken = client.post(SANDBOXES, content=b'{"kind": "Sandbox",\n]', headers={"Content-Type": "application/json"})
    assert "\nbody:2:1: " in broken.json()["message"]


def test_documents_of_the_sdk_have_no_positions(served: ApiStack) -> None:
    wrong = {"kind": "Sandbox", "metadata": {"name": "box"}, "spec": {"priority": "high"}}
    text = "kind: Sandbox\napiVersion: paddock/v1alpha1\nmetadata: {name: box}\nspec: {priority: high}\n"
    with Paddock(f"unix://{served.socket}") as paddock:
        with pytest.raises(Invalid, match=r"changed\nspec\.priority: ") as refusal:
            paddock.apply([wrong])
        assert "request" not in str(refusal.value)
        with pytest.raises(Invalid, match=r"request:4:18: spec\.priority: "):
            paddock.apply(text)
        with pytest.raises(Invalid, match=r"Sandbox `box` is already defined$"):
            paddock.apply([{**wrong, "spec": {"template": {"image": "a:1"}}}] * 2)
