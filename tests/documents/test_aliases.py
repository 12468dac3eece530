"""Kubernetes' spellings in specs: read as Paddock's own fields, with the user's words in messages."""

from typing import Any

import pytest

from controller.documents import aliases
from controller.documents.document import parse
from controller.kinds.registry import discover

PROBE = "{httpGet: {path: /health, port: 8080}, periodSeconds: 5, failureThreshold: 2}"


def read(kind: str, spec: str) -> tuple[Any, list[str]]:
    text = f"apiVersion: paddock/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n{spec}"
    documents, problems = parse("a.yaml", text, discover())
    return [document.spec for document in documents], [str(problem) for problem in problems]


@pytest.mark.parametrize(("kubernetes_probe", "ours"), list(aliases.PROBES.items()))
@pytest.mark.parametrize(
    "action",
    [
        "{httpGet: {path: /health, port: 8080, scheme: HTTPS, host: a}, periodSeconds: 5, timeoutSeconds: 2}",
        "{tcpSocket: {port: 8080}, initialDelaySeconds: 3, failureThreshold: 2, successThreshold: 1}",
        "{exec: {command: [cat, /tmp/healthy]}}",
    ],
)
def test_kubernetes_probes_are_read_as_ours(kubernetes_probe: str, ours: str, action: str) -> None:
    sandbox = "  template:\n    image: a\n    %s: " + action + "\n"
    assert read("Sandbox", sandbox % kubernetes_probe) == read("Sandbox", sandbox % ours)
    assert read("Sandbox", sandbox % kubernetes_probe)[1] == []
    template = "  image: a\n  %s: " + action + "\n"
    assert read("SandboxTemplate", template % kubernetes_probe) == read("SandboxTemplate", template % ours)


def test_a_template_may_nest_its_fields() -> None:
    fields = f"image: a\n    command: [sh]\n    livenessProbe: {PROBE}\n"
    nested, plain = f"  template:\n    {fields}", f"  {fields}".replace("    ", "  ")
    assert read("SandboxTemplate", nested) == read("SandboxTemplate", plain)
    assert read("SandboxTemplate", nested)[1] == []


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        (
            "SandboxTemplate",
            "  template:\n    image: a\n    livenessProbe: {exec: {command: [a]}, periodSeconds: 0}\n",
            "a.yaml:7:58: spec.template.livenessProbe.periodSeconds: must be at least 1, not `0`",
        ),
        ("SandboxTemplate", "  template: {command: [a]}\n", "a.yaml:5:13: spec.template.image: is required; "),
        (
            "SandboxTemplate",
            "  template: {image: a}\n  user: 1:1\n",
            "a.yaml:5:3: spec.template: has `user` beside it; write all fields of the template in one place",
        ),
        (
            "Sandbox",
            f"  template:\n    image: a\n    liveness: {PROBE}\n    livenessProbe: {PROBE}\n",
            "a.yaml:8:5: spec.template.livenessProbe: is the same as `liveness`, which is set, too; keep one of them",
        ),
        (
            "Sandbox",
            "  template: {image: a, livenessProbe: {grpc: {port: 1}}}\n",
            "spec.template.livenessProbe.grpc: unknown field; write `tcpSocket:",
        ),
        (
            "Sandbox",
            "  template: {image: a, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: A, value: b}]}}}\n",
            "spec.template.livenessProbe.httpGet.httpHeaders: unknown field; only the Host header can be set",
        ),
        (
            "Sandbox",
            "  template: {image: a}\n  livenessProbe: {exec: {command: [a]}}\n",
            "a.yaml:6:3: spec.livenessProbe: unknown field; write it once, into the template",
        ),
    ],
)
def test_a_problem_names_the_field_as_written(kind: str, spec: str, message: str) -> None:
    documents, problems = read(kind, spec)
    assert documents == []
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("kind", "patch", "meant"),
    [
        ("Sandbox", {"template": {"livenessProbe": None}}, {"template": {"liveness": None}}),
        ("Sandbox", {"template": None, "priority": 1}, {"template": None, "priority": 1}),
        ("SandboxTemplate", {"template": {"image": "b"}}, {"image": "b"}),
        ("SandboxTemplate", {"template": {"image": "b"}, "user": None}, {"template": {"image": "b"}, "user": None}),
        ("SandboxPool", {"template": {"image": "b"}}, {"template": {"image": "b"}}),
        ("Sandbox", 3, 3),
    ],
)
def test_patches_are_read_alike(kind: str, patch: Any, meant: Any) -> None:
    assert aliases.resolve_spec(patch, kind) == meant
