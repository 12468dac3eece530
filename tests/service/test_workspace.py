"""A volume as the workspace of new sandboxes: written once, into what is new."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers_api import ApiStack, make_api

APP = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: app}
spec:
  template: {image: "paddock/python:1", securityLevel: development}
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiStack]:
    before = make_api(tmp_path)
    before.apply(APP.replace("app", "older"))
    created = make_api(tmp_path, store=before.store, workspace_bytes=8 << 20, first_uid=100)
    yield created
    created.store.close()


def claims(api: ApiStack, name: str) -> list[dict[str, Any]]:
    (stored,) = (entry for entry in api.store.list("Sandbox")[0] if entry.name == name)
    return list(stored.spec["template"].get("volumeClaimTemplates", ()))


def test_new_objects_get_it_once_and_stored_ones_never(api: ApiStack) -> None:
    api.apply(APP)
    [claim] = claims(api, "app")
    assert (claim["mountPath"], claim["size"], claim["reclaimPolicy"]) == ("/workspace", "8Mi", "Delete")
    generations = {stored.name: stored.generation for stored in api.store.list("Sandbox")[0]}
    for name in ("app", "older"):
        api.apply(APP.replace("app", name))
    assert {stored.name: stored.generation for stored in api.store.list("Sandbox")[0]} == generations
    assert (len(claims(api, "app")), claims(api, "older")) == (1, [])
