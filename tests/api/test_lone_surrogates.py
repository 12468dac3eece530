"""Lone surrogates, which JSON can write and UTF-8 can not, are refused everywhere."""

from collections.abc import Iterator

import httpx
import pytest

from tests.helpers_api import ApiStack

API = "/apis/paddock/v1alpha1"
SANDBOX = f"{API}/namespaces/default/sandboxes/quickstart"
HALF = "\\ud800"
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
PLAIN = "application/json"


@pytest.fixture
def http(served: ApiStack) -> Iterator[httpx.Client]:
    served.apply()
    served.view.show(served.sandbox())
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(base_url="http://paddock", transport=transport, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "type_", "body"),
    [
        ("PATCH", SANDBOX, MERGE, f'{{"{HALF}": 1}}'),
        ("PATCH", SANDBOX, MERGE, f'{{"spec": {{"{HALF}": 1}}}}'),
        ("PATCH", SANDBOX, MERGE, f'{{"spec": {{"template": {{"image": "{HALF}"}}}}}}'),
        ("PATCH", SANDBOX, MERGE, f'{{"metadata": {{"annotations": {{"{HALF}": "a"}}}}}}'),
        ("PATCH", SANDBOX, MERGE, f'{{"metadata": {{"annotations": {{"a": "{HALF}"}}}}}}'),
        ("PATCH", SANDBOX, MERGE, f'{{"metadata": {{"finalizers": ["{HALF}"]}}}}'),
        ("PATCH", SANDBOX, JSON, f'[{{"op": "remove", "path": "/{HALF}"}}]'),
        ("POST", f"{SANDBOX}/exec", PLAIN, f'{{"command": ["x"], "{HALF}": 1}}'),
        ("POST", f"{SANDBOX}/exec", PLAIN, f'{{"command": ["{HALF}"]}}'),
        ("POST", f"{SANDBOX}/exec", PLAIN, f'{{"command": ["x"], "env": {{"{HALF}": "{HALF}"}}}}'),
        ("POST", f"{API}/apply", PLAIN, f'{{"documents": [{{"text": "{HALF}"}}], "namespace": "{HALF}"}}'),
        ("POST", f"{API}/apply", PLAIN, f'{{"{HALF}": 1}}'),
        ("POST", f"{API}/auth/can-i", PLAIN, f'{{"verb": "{HALF}", "kind": "sandbox"}}'),
        ("POST", f"{SANDBOX}s", PLAIN, f'{{"kind": "{HALF}"}}'),
    ],
)
def test_it_is_no_defect(http: httpx.Client, method: str, path: str, type_: str, body: str) -> None:
    answer = http.request(method, path, content=body, headers={"Content-Type": type_})
    assert (400 <= answer.status_code < 500, answer.json()["kind"]) == (True, "Status"), answer.text
