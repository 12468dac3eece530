"""Volumes over HTTP: read-only, deletable with write grants, never while in use."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.listeners import API, client, opened, token
from tests.conftest import HandClock
from tests.fakes.engine import FakeEngine
from tests.helpers_api import ApiStack, make_api

A = f"{API}/namespaces/team-a/volumes"
ROOT = Path(__file__).parents[2]
USER = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: app, namespace: team-a}
spec: {template: {image: "a:1", volumes: [{name: used, mountPath: /used, size: 8Mi}]}}
"""


@pytest.fixture
def api(tmp_path: Path, quiet: None) -> Iterator[ApiStack]:
    engine = FakeEngine("volumes", clock=HandClock())
    engine.volumes = {("team-a", "kept"): 8 << 20, ("team-a", "used"): 8 << 20, ("team-b", "theirs"): 8 << 20}
    engine.claims = {("team-a", "kept"): "gone"}
    created = make_api(tmp_path, engine=engine)
    created.apply(USER)
    yield created
    created.store.close()


def test_reading_and_deleting(api: ApiStack) -> None:
    with opened(api), client(api) as root:
        names = [entry["metadata"]["name"] for entry in root.get(f"{API}/volumes").json()["items"]]
        assert names == ["kept", "used", "theirs"]
        document = root.get(f"{A}/kept").json()
        assert document["spec"] == {"size": "8Mi", "reclaimPolicy": "Retain", "sandbox": "gone"}
        assert document["status"] == {"phase": "Released", "mounted": False}
        in_use = root.delete(f"{A}/used")
        assert (in_use.status_code, in_use.json()["reason"]) == (409, "Conflict")
        assert in_use.json()["message"] == "volume `used` is used by sandbox app; delete or change those first"
        body = {"kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        assert root.request("DELETE", f"{A}/kept", json=body).json()["metadata"]["uid"] == document["metadata"]["uid"]
        assert root.delete(f"{A}/kept").status_code == 404
        assert root.get(f"{A}/kept").status_code == 404
        by_selector = root.get(f"{API}/volumes", params={"fieldSelector": "status.phase=Bound"}).json()["items"]
        assert [entry["metadata"]["name"] for entry in by_selector] == ["used"]


@pytest.mark.parametrize(
    ("arguments", "answer", "kept"),
    [
        ("", "n\n", ["kept", "used", "theirs"]),
        ("", "", ["kept", "used", "theirs"]),
        ("", "y\n", ["used"]),
        ("-y", "", ["used"]),
        ("kept", "", ["used", "theirs"]),
    ],
)
def test_make_prune_removes_what_it_lists(api: ApiStack, arguments: str, answer: str, kept: list[str]) -> None:
    env = {**os.environ, "PADDOCK_VENV": sys.prefix, "PADDOCK_SERVER": f"unix://{api.socket}"}
    line = ["make", "--no-print-directory", "-C", str(ROOT), "prune", f"ARGS={arguments}"]
    with opened(api), client(api) as root:
        document = {"PADDOCK_NAMESPACE": "team-a"} if arguments == "kept" else {}
        done = subprocess.run(
            line, env=env | document, input=answer, capture_output=True, text=True, timeout=60, check=True
        )
        assert [entry["metadata"]["name"] for entry in root.get(f"{API}/volumes").json()["items"]] == kept
    if arguments != "kept":
        assert "  team-a kept 8Mi\n  team-b theirs 8Mi\n" in done.stdout
        assert "used" not in done.stdout.replace("nothing uses", "")


@pytest.mark.parametrize(
    ("role", "namespace", "code"),
    [("operator", "team-a", 200), ("user", "team-a", 403), ("viewer", "team-a", 403), ("admin", "team-b", 404)],
)
def test_deleting_takes_an_operator_of_the_namespace(api: ApiStack, role: str, namespace: str, code: int) -> None:
    with opened(api), client(api, token(api, role, namespace)) as created:
        assert created.delete(f"{A}/kept").status_code == code
    entries = [entry for entry in api.store.audit.entries() if entry.kind == "Volume"]
    assert [entry.outcome for entry in entries] == ["allowed" if code == 200 else "refused"]


@pytest.mark.parametrize("name", ["..", "%2e%2e", "k*", "[k]ept", "kept.img", "..%2fteam-b%2ftheirs"])
def test_a_name_is_no_path_and_no_pattern(api: ApiStack, name: str) -> None:
    with opened(api), client(api, token(api, "operator", "team-a")) as created:
        assert created.delete(f"{A}/{name}").status_code in (404, 405)
        assert created.delete(f"{API}/namespaces/%2a/volumes/theirs").status_code in (403, 404, 405)
    assert len(api.services.objects.list(api.services.registry.by_word("vol"), None).objects) == 3  # type: ignore[arg-type]
