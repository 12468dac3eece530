"""The published schema: up to date, one with the models, and true in what it says of effects."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.documents import json_schema
from controller.kinds.base import FORM
from controller.kinds.registry import Kind, discover
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import render

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "specs/schema/paddock.schema.json"
EXAMPLES = sorted((ROOT / "specs").rglob("*.yaml"))


def test_the_committed_file_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controller.documents.json_schema"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    remedy = "run: python -m controller.documents.json_schema > specs/schema/paddock.schema.json"
    assert PUBLISHED.read_text() == done.stdout, remedy


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_names_the_schema_for_editors(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == PUBLISHED


@cache
def definitions() -> dict[str, Any]:
    document: dict[str, Any] = json_schema.published_schema(discover())["definitions"]
    return document


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_use_fields_of_the_schema_only(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert unknown(definitions()[document["kind"]], document, document["kind"]) == []


def unknown(schema: dict[str, Any], value: Any, at: str) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in unknown(schema["items"], item, f"{at}[]")]
    if not isinstance(value, dict) or schema.get("additionalProperties") is not False:
        return []
    properties = schema.get("properties", {})
    wrong = [f"{at}.{name}" for name in value if name not in properties]
    missing = [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    return wrong + missing + [e for name, item in value.items() for e in unknown(properties.get(name, {}), item, name)]


def leaves(schema: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for name, field in json_schema.fields(schema).items():
        yield (*at, name), field
        yield from leaves(field, (*at, name))


@pytest.mark.parametrize("kind", list(discover()), ids=lambda kind_: kind_.name)
def test_every_field_has_a_description(kind: Kind) -> None:
    described = {
        ".".join(path): document.get("description") for path, document in leaves(json_schema.document_schema(kind))
    }
    assert [path for path, message in described.items() if not message] == []


def test_a_description_stands_below_its_field() -> None:
    limits = json_schema.at(json_schema.document_schema(kind_of("Sandbox")), ("spec", "resources", "limits", "cpu"))
    assert limits is not None
    assert limits["description"].startswith("CPU time. (CPU in cores")
    assert FORM not in json_schema.text(discover())


def spec(**changes: Any) -> SandboxSpec:
    full: dict[str, Any] = yaml.safe_load((ROOT / "specs/sandbox/full.yaml").read_text())["spec"]
    return SandboxSpec.model_validate({**full, **changes})


OTHER: dict[str, Any] = {
    "image": "other:1",
    "command": ["true"],
    "args": ["now"],
    "agent": {},
    "user": "30000:30000",
    "workingDir": "/tmp",
    "env": [{"name": "A", "value": "b"}],
    "tmpfs": [],
    "shmSize": "48Mi",
    "security": {"runAsNonRoot": True},
    "workspace": {"mountPath": "/work"},
    "secrets": [{"name": "a", "mountPath": "/run/secrets/a"}],
    "volumes": [{"name": "a", "mountPath": "/data", "size": "8Mi"}],
    "volumeClaimTemplates": [{"name": "a", "mountPath": "/data", "size": "8Mi"}],
    "runtime": "runsc",
    "appArmorProfile": "docker-default",
    "seLinuxOptions": {"level": "s0:c1"},
    "resources": {"limits": {"pids": 3}},
    "startup": {"exec": {"command": ["true"]}},
    "readiness": {"tcpSocket": {"port": 80}},
    "liveness": {"httpGet": {"port": 80}},
    "execDeadlineSeconds": 5,
    "restoreFrom": {"snapshotRef": {"name": "first"}},
}


@pytest.mark.parametrize("name", OTHER)
def test_effect_of_a_template_field_matches_the_hash(name: str) -> None:
    before = spec()
    assert before.template is not None
    after = before.template.model_dump(mode="json", by_alias=True, exclude_none=True) | {name: OTHER[name]}
    hashes = []
    for sandbox_spec in (before, spec(template=after)):
        assert sandbox_spec.template is not None
        hashes.append(render(sandbox_spec, sandbox_spec.template, name="a", uid="u", policy=Policy()).template_hash)
    recreated = hashes[0] != hashes[1]
    assert json_schema.takes_effect("Sandbox", ("template", name)) == ("recreate" if recreated else "live")


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        (("securityLevel",), "recreate"),
        (("resources", "limits", "gpus"), "recreate"),
        (("template", "resources", "limits", "gpus"), "recreate"),
        (("resources", "limits", "memory"), "live"),
        (("workspace", "hostPath"), "recreate"),
        (("workspace", "volume", "size"), "live"),
        (("template", "volumes", 0, "size"), "live"),
        (("template", "volumeClaimTemplates", 0, "reclaimPolicy"), "live"),
        (("template", "tmpfs", 0, "size"), "recreate"),
    ],
)
def test_effect_of_a_field_of_a_sandbox(path: tuple[str | int, ...], effect: str) -> None:
    assert json_schema.takes_effect("Sandbox", path) == effect


def test_gpus_of_a_named_template_wait_for_the_next_start() -> None:
    assert json_schema.takes_effect("SandboxTemplate", ("resources", "limits", "gpus")) == "at next start"
    assert json_schema.takes_effect("SandboxTemplate", ("resources", "limits", "memory")) == "live"


def test_every_field_of_a_template_was_tried() -> None:
    document = json_schema.at(json_schema.document_schema(kind_of("Sandbox")), ("spec", "template"))
    assert document is not None
    # Only one level is offered in this version; another one can't be rendered.
    assert set(json_schema.fields(document)) - {"securityLevel"} == set(OTHER)


def kind_of(name: str) -> Kind:
    kind = discover().by_name(name)
    assert kind is not None
    return kind
