"""Documents of new sandboxes from keyword arguments; the daemon's own parser accepts them."""

import json
from typing import Any

import pytest

from controller.documents.document import parse
from controller.kinds.registry import discover
from paddock import Secret
from paddock._spec import document, spec_of


def valid(spec: dict[str, Any], name: str = "a") -> dict[str, Any]:
    created = document(name, "default", {}, {}, spec)
    observed, problems = parse("body", json.dumps(created), discover())
    assert [str(problem) for problem in problems] == []
    assert observed[0].kind.name == "Sandbox"
    return created


def test_every_option_is_a_field_of_a_valid_spec() -> None:
    spec = spec_of(
        {
            "image": "example.org/a:1",
            "command": ["run"],
            "env": {"A": "1"},
            "level": "build",
            "cpu": 1.5,
            "memory": "256Mi",
            "pids": 50,
            "disk": 1 << 30,
            "gpus": 0,
            "workspace": {"volume": {"name": "w", "size": "1Gi"}},
            "volumes": [{"name": "d", "mountPath": "/d", "size": "1Gi"}],
            "allowed_hosts": ["example.org"],
            "restart": "Never",
            "idle_timeout": 60,
            "on_idle": "Delete",
            "lifetime": 3600,
            "keep_running": False,
            "priority": 3,
        }
    )
    assert valid(spec)["spec"] == spec
    assert spec["resources"]["limits"] == {"cpu": "1.5", "memory": "256Mi", "pids": 50, "disk": 1 << 30, "gpus": 0}
    assert spec["lifecycle"]["ttlSecondsAfterFinished"] == 0


def test_sources_of_the_container() -> None:
    assert valid(spec_of({}))["spec"]["template"]["image"] == "paddock/python:1"
    assert valid(spec_of({"template": "t"}))["spec"] == {"templateRef": {"name": "t"}}
    pooled = valid(spec_of({"pool": "p", "memory": "1Gi"}, "t"))["spec"]
    assert (pooled["templateRef"], pooled["poolPolicy"]) == ({"name": "t"}, "Require")
    with pytest.raises(TypeError, match="`template` and `pool` exclude each other"):
        spec_of({"template": "t", "pool": "p"})
    with pytest.raises(TypeError, match="`volumes` is part of a container, which `pool` defines"):
        spec_of({"pool": "p", "volumes": []}, "t")


def test_a_secret_is_never_a_variable_of_the_container() -> None:
    spec = spec_of({"env": {"A": "1", "TOKEN": Secret("npm-token")}})
    assert spec["template"]["env"] == [{"name": "A", "value": "1"}]


def test_a_list_of_hosts_means_level_development() -> None:
    spec = valid(spec_of({"allowed_hosts": ["example.org"]}))["spec"]
    assert (spec["securityLevel"], spec["network"]) == ("development", {"allowedHosts": ["example.org"]})
    assert "securityLevel" not in spec_of({"allowed_hosts": []})
    assert "securityLevel" not in spec_of({"template": "t", "allowed_hosts": ["example.org"]})
    assert spec_of({"level": "build", "allowed_hosts": ["example.org"]})["securityLevel"] == "build"
    with pytest.raises(TypeError, match="level full-isolation has no network, so `allowed_hosts` can't apply"):
        spec_of({"level": "full-isolation", "allowed_hosts": ["example.org"]})
    with pytest.raises(TypeError, match="`allowed_hosts` must be a list"):
        spec_of({"allowed_hosts": "example.org"})


def test_names_of_documents() -> None:
    content = {"kind": "Sandbox", "metadata": {"name": "own", "labels": {"a": "1"}}, "spec": spec_of({})}
    assert document("", "ns", {"b": "2"}, {}, content)["metadata"] == {
        "namespace": "ns",
        "name": "own",
        "labels": {"a": "1", "b": "2"},
    }
    assert document("given", "ns", {}, {}, content)["metadata"]["name"] == "given"
    names = {document("", "ns", {}, {}, spec_of({}))["metadata"]["name"] for _ in range(100)}
    assert len(names) == 100
