"""The example specs are what they say: valid, and the full one shows every field there is."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from controller.kinds.runtime.probe import Probe
from controller.kinds.sandbox import SandboxSpec
from tests.deploy.conftest import CHECKOUT

SANDBOXES = [CHECKOUT / "specs/quickstart.yaml", *sorted((CHECKOUT / "specs/sandbox").glob("*.yaml"))]
CONFINEMENTS = ("runtime", "app_armor_profile", "se_linux_options")  # commented out: few hosts have them
PROBES = ("startup", "readiness", "liveness")


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


@pytest.mark.parametrize("path", SANDBOXES, ids=lambda path: path.name)
def test_is_a_valid_sandbox(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert (document["apiVersion"], document["kind"]) == ("paddock/v1alpha1", "Sandbox")
        SandboxSpec.model_validate(document["spec"])


def unset(value: BaseModel, at: str = "spec") -> list[str]:
    missing = [f"{at}.{name}" for name in type(value).model_fields if name not in value.model_fields_set]
    for name in value.model_fields_set:
        reserved = getattr(value, name)
        for entry in reserved if isinstance(reserved, tuple) else (reserved,):
            if isinstance(entry, BaseModel):
                missing += unset(entry, f"{at}.{name}")
    return missing


def test_the_full_example_shows_every_field() -> None:
    """But for nodeSelector and onHostLoss (few hosts have a scheduler), and what the other examples of specs/ show."""
    probes = (f"spec.template.{probe}" for probe in PROBES)
    elsewhere = {
        "spec.template_ref",
        "spec.restore_from",
        "spec.template.restore_from",
        "spec.template.agent",
        "spec.template.resources",
        "spec.models",
        "spec.credentials",
        "spec.resources.gpu_device_ids",
        "spec.network",
        "spec.node_selector",
        "spec.on_host_loss",
        "spec.files",
        "spec.host_folders",
        "spec.start_after",
        "spec.workspace",
        "spec.template.workspace",
        "spec.template.secrets",
        "spec.template.volumes",
        "spec.template.volume_claim_templates",
        *probes,
    }
    elsewhere |= {f"spec.template.{confinement}" for confinement in CONFINEMENTS}
    missing = unset(SandboxSpec.model_validate(read(CHECKOUT / "specs/sandbox/full.yaml")["spec"]))
    assert set(missing) == elsewhere


@pytest.mark.parametrize(
    ("name", "field"), [("ordered", "files"), ("ordered", "start_after"), ("host-folders", "host_folders")]
)
def test_a_field_is_shown_by_its_own_example(name: str, field: str) -> None:
    documents = yaml.safe_load_all((CHECKOUT / f"specs/sandbox/{name}.yaml").read_text())
    specs = [SandboxSpec.model_validate(document["spec"]) for document in documents]
    (elements,) = [getattr(spec, field) for spec in specs if field in spec.model_fields_set]
    assert [missing for element in elements for missing in unset(element)] == []


def test_the_example_of_probes_shows_every_field_of_one() -> None:
    template = SandboxSpec.model_validate(read(CHECKOUT / "specs/sandbox/probes.yaml")["spec"]).template
    assert template is not None
    probes = [probe for probe in (template.startup, template.readiness, template.liveness) if probe is not None]
    assert len(probes) == len(PROBES)
    assert set().union(*(probe.model_fields_set for probe in probes)) == set(Probe.model_fields)
    nested = [
        action for probe in probes for action in (probe.exec, probe.http_get, probe.tcp_socket) if action is not None
    ]
    assert [missing for action in nested for missing in unset(action)] == []


def test_the_example_of_a_project_shows_every_field_of_an_agent() -> None:
    template = SandboxSpec.model_validate(read(CHECKOUT / "specs/sandbox/project.yaml")["spec"]).template
    assert template is not None
    assert template.agent is not None
    assert unset(template.agent) == []
