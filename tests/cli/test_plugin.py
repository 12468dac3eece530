"""Manifests of plugins: foreign files, read as strictly as any spec."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.cli.errors import CliError
from controller.cli.plugin import read_manifest, unmet
from controller.kinds.plugin import PluginSpec
from controller.policy.plugin import rendered
from tests.cli.conftest import Run
from tests.fakes.engine import FACTS
from tests.helpers_api import ApiStack

MANIFEST = (
    "name: p\nversion: '1.0'\ntype: tool\nobjects: [{kind: SandboxTemplate, metadata: {name: t}, spec: {image: x}}]\n"
)
LAUGHS = "".join(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}' if at else 'ha'] * 9)}]\n" for at in range(12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MANIFEST + LAUGHS, "more than 400,000 values"),
        (MANIFEST + "author: a\nauthor: b\n", "author"),
        (MANIFEST + "author: !!python/object/apply:os.system [id]\n", "python"),
        (MANIFEST + "---\nname: q\n", "must hold one manifest"),
        ("[" * 5000, "nested"),
        (MANIFEST + "main: index.js\npermissions: [docker.access]\n", "no plugin gets the engine"),
    ],
)
def test_tricks_in_a_manifest_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "plugin.yaml").write_text(text)
    with pytest.raises(CliError, match=words):
        read_manifest(str(tmp_path))


def test_values_are_those_of_a_spec(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(MANIFEST + "description: 2024-01-01\nauthor: yes\n")
    spec = read_manifest(str(tmp_path)).document["spec"]
    assert (spec["description"], spec["author"]) == ("2024-01-01", "yes")


SHOWN: dict[str, Any] = {
    "name": "tools",
    "version": "1.0.0",
    "type": "mcp-provider",
    "requirements": {"docker": ">=20.10", "mcp": ">=1.0"},
    "configuration": {"enable_compose": {"type": "boolean", "default": False}},
    "objects": [{"kind": "SandboxTemplate", "metadata": {"name": "tools"}, "spec": {"image": "x"}}],
}


def folder_with(tmp_path: Path, **fields: Any) -> str:
    folder = tmp_path / "plugin"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(SHOWN | fields))
    return str(folder)


def test_a_folder_with_a_manifest_json_is_installed(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.view.seen = replace(served.view.seen, facts=replace(FACTS, engine_version="20.10.24+dfsg1"))
    done = paddock("plugin", "install", folder_with(tmp_path))
    assert done.output == "plugin/tools installed\n"


def test_unmet_requirements_refuse_the_plugin(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    required = {"docker": ">=24", "mcp": ">=1.0, <2", "podman": ">=4"}
    source = folder_with(tmp_path, requirements=required)
    blind = paddock("plugin", "install", source)
    assert "requirements.docker: the version of docker is not known now" in blind.output
    served.view.seen = replace(served.view.seen, facts=replace(FACTS, engine_version="20.10.24"))
    done = paddock("plugin", "install", source)
    assert done.exit_code == 1
    assert "requirements.docker: needs >=24, and this host has 20.10.24" in done.output
    assert "requirements.mcp: needs >=1.0, <2, and this host has 2." in done.output
    assert "requirements.podman: is not known; write docker or mcp" in done.output
    assert served.store.get("Plugin", "default", "tools") is None


@pytest.mark.parametrize(
    ("text", "met"),
    [
        (">=20.10", True),
        (">= 20.10", True),
        (">20.10 <21", True),
        ("^20.10", True),
        ("~20.10", True),
        ("20.10", True),
        ("20.10.24", True),
        ("==20.10.5", False),
        ("<20.10", False),
        ("^19", False),
        ("~20.9.1", False),
        ("20.1", False),
        (">=20.10.25", False),
    ],
)
def test_requirements_compare_versions(text: str, met: bool) -> None:
    assert (not unmet({"docker": text}, {"docker": "20.10.24+dfsg1"}, "p")) is met


@pytest.mark.parametrize("text", ["", "latest", ">=a", ">=20.10 or 3", "20.10 21"])
def test_a_requirement_that_compares_nothing_is_refused(text: str) -> None:
    [problem] = unmet({"docker": text}, {"docker": "20.10.24"}, "p")
    assert "compares no versions" in problem


def test_the_outermost_manifest_of_an_archive_counts(tmp_path: Path) -> None:
    folder = Path(folder_with(tmp_path))
    (folder / "app").mkdir()
    (folder / "app" / "manifest.json").write_text("{}")
    with tarfile.open(tmp_path / "plugin.tar", "w") as archive:
        for entry in ("app/manifest.json", "manifest.json"):
            archive.add(folder / entry, f"plugin/{entry}")
    assert read_manifest(str(tmp_path / "plugin.tar")).document["metadata"]["name"] == "tools"


def test_flags_of_swarm_are_explained_beside_others(paddock: Run, served: ApiStack) -> None:
    assert paddock("plugin", "install", "docker-mcp-tools").exit_code == 0
    done = paddock("plugin", "config", "docker-mcp-tools", "--enable-compose", "--enable-swarm")
    assert (done.exit_code, done.stdout) == (0, "plugin/docker-mcp-tools configured\n")
    assert "--enable-swarm: a host works alone here; placement comes with several hosts" in done.stderr
    plugin = served.store.get("Plugin", "default", "docker-mcp-tools")
    assert plugin is not None
    assert plugin.spec["config"] == {"enable_compose": True}
    alone = paddock("plugin", "config", "docker-mcp-tools", "--enable-swarm")
    assert (alone.exit_code, "placement comes" in alone.stderr) == (1, True)


def test_the_model_server_plugin_takes_gpus(paddock: Run, served: ApiStack) -> None:
    done = paddock("plugin", "install", "docker-llm-provider", "--set", "gpus=1", "--grant")
    assert done.exit_code == 0, done.output
    plugin = served.store.get("Plugin", "default", "docker-llm-provider")
    assert plugin is not None
    [server] = [
        document for document in rendered(PluginSpec.model_validate(plugin.spec)) if document["kind"] == "ModelServer"
    ]
    assert server["spec"]["resources"]["limits"]["gpus"] == 1
