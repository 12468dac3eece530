"""Secrets over HTTP: names and what uses them, values that only go in, and admins alone."""

import json
from typing import Any

import httpx
import pytest

from controller.kinds.access.access import Caller, Grant
from controller.service.access.access import acting
from controller.service.errors import Forbidden
from tests.api.listeners import API, client, opened, token
from tests.helpers_api import ApiStack

HOST = "api.example.org"


def document(kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def put(root: httpx.Client, name: str, **fields: Any) -> httpx.Response:
    return root.put(f"{API}/namespaces/default/secrets/{name}", json=fields)


def test_secrets_are_listed_with_their_users(api: ApiStack) -> None:
    mounts = [{"name": "npm", "mountPath": "/run/npm"}]
    credentials = [{"host": HOST, "secretRef": {"name": "git"}}]
    template = {"image": "paddock/python:1", "secrets": mounts, "securityLevel": "development"}
    api.apply(document("Sandbox", "web", {"template": template, "credentials": credentials}))
    api.apply(document("Provider", "ai", {"type": "OpenAI", "url": f"https://{HOST}", "secretRef": {"name": "key"}}))
    with opened(api), client(api) as root:
        assert put(root, "npm", value="one\n", **{"for": "sandboxes"}).json()["result"] == "created"
        assert put(root, "npm", value="two\n", **{"for": "sandboxes"}).json()["result"] == "changed"
        assert put(root, "git", value="three", **{"for": HOST}).status_code == 200
        text = root.get(f"{API}/secrets").text
    items = {(item["for"], item["name"]): item for item in json.loads(text)["items"]}
    assert {key: [user["name"] for user in item["usedBy"]] for key, item in items.items()} == {
        ("sandboxes", "npm"): ["web"],
        (HOST, "git"): ["web"],
        ("providers", "key"): ["ai"],
    }
    assert [key for key, item in items.items() if item["changedTime"] is None] == [("providers", "key")]
    assert (api.folder / "secrets/default/npm").read_bytes() == b"two\n"
    assert "two" not in text


def test_no_secret_of_another_folder_is_set(api: ApiStack) -> None:
    """`default.models` is where the keys of the providers of `default` are."""
    with opened(api), client(api) as root:
        assert put(root, "key", value="one", hosts=[HOST], **{"for": "providers"}).status_code == 200
        answer = root.put(f"{API}/namespaces/default.models/secrets/key", json={"value": "two", "for": "sandboxes"})
        assert (answer.status_code, "not a valid namespace" in answer.text) == (400, True)
        text = root.get(f"{API}/audit").text
    assert "default.models" not in [entry.get("namespace") for entry in json.loads(text)["items"]]
    assert [path.read_bytes() for path in api.folder.rglob("secrets/*/key")] == [b"one"]


def test_the_use_case_is_for_admins_of_everything(api: ApiStack) -> None:
    """Not only the routes are: its caller is an admin of the namespace."""
    with acting(Caller("a test", grants=(Grant(role="admin", namespaces=("default",)),))), pytest.raises(Forbidden):
        api.services.secrets.write("default", "key", b"x", "sandboxes", ())


def test_values_are_nowhere_but_in_the_file(api: ApiStack) -> None:
    with opened(api), client(api) as root:
        assert put(root, "key", value="s3cr3t", hosts=[HOST], **{"for": "providers"}).status_code == 200
        refusals = [
            put(root, "key", value="s3cr3t", other=1, **{"for": "providers"}),
            put(root, "Key", value="s3cr3t", **{"for": "sandboxes"}),
            put(root, "bare", value="s3cr3t", **{"for": "providers"}),
            put(root, "key", value="s3cr3t", hosts=[HOST], **{"for": "sandboxes"}),
        ]
        audit = root.get(f"{API}/audit").text
    assert [refusal.status_code for refusal in refusals] == [400] * 4
    assert not any("s3cr3t" in text for text in (audit, *(refusal.text for refusal in refusals)))
    assert "secrets" in audit


@pytest.mark.parametrize(("role", "namespaces"), [("operator", ()), ("admin", ("default",))])
def test_only_admins_of_everything_see_secrets(api: ApiStack, role: str, namespaces: tuple[str, ...]) -> None:
    with opened(api), client(api) as root:
        root.headers["Authorization"] = f"Bearer {token(api, role, *namespaces)}"
        assert root.get(f"{API}/secrets").status_code == 403
        assert put(root, "npm", value="x", **{"for": "sandboxes"}).status_code == 403
    assert not (api.folder / "secrets").exists()
