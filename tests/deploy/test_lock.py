"""The lock files: complete, hashed, and free of any index or path."""

import json
import re
import tomllib

import pytest

from tests.deploy.conftest import CHECKOUT

PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
FILES = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-panel.lock",
    "tests/mcp/requirements.lock",
    "tests/mcp/servers.lock",
)
OF_IMAGES = tuple(f"images/{name}/requirements.lock" for name in ("data", "node", "deno", "model-tiny"))
OF_NPM = ("tests/mcp/node", "images/bun", "images/model-tiny", "images/model-tiny/native")


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


@pytest.mark.parametrize("file", [*FILES, *OF_IMAGES])
def test_names_no_index_and_no_path(file: str) -> None:
    for line in (CHECKOUT / file).read_text().splitlines():
        assert "://" not in line
        assert not re.match(r"\s*(-|--)(index|extra|find|trusted|e\b|i\b|f\b)", line)
        assert " @ " not in line


@pytest.mark.parametrize("file", [*FILES, *OF_IMAGES])
def test_every_pin_has_a_hash(file: str) -> None:
    text = (CHECKOUT / file).read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text[text.index("\n", text.index("make lock")) + 1 :])
    assert len(entries) > (30 if file in FILES else 0)
    for entry in entries:
        assert PIN.match(entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_all_hold_what_the_project_asks_for_and_agree() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    runtime, dev, panel = (dict(PIN.findall((CHECKOUT / file).read_text())) for file in FILES[:3])
    requested = [*project["project"]["dependencies"], *extras["postgres"], *project["build-system"]["requires"]]
    assert {name_of(entry) for entry in requested} - {"paddock-sdk"} <= set(runtime)
    sdk = tomllib.loads((CHECKOUT / "controller/client/pyproject.toml").read_text())["project"]["dependencies"]
    assert set(sdk) <= set(project["project"]["dependencies"])
    assert {name_of(entry) for entry in extras["dev"]} <= set(dev)
    assert {name_of(entry) for entry in extras["panel"]} <= set(panel)
    assert runtime.items() <= dev.items() <= panel.items()


@pytest.mark.parametrize("folder", OF_NPM)
def test_the_lock_of_npm_packages_names_no_registry(folder: str) -> None:
    text = (CHECKOUT / folder / "package-lock.json").read_text()
    packages = {name: package for name, package in json.loads(text)["packages"].items() if name}
    manifest = json.loads((CHECKOUT / folder / "package.json").read_text())
    dependencies = manifest.get("dependencies") or manifest["optionalDependencies"]
    assert dependencies == {name: packages[f"node_modules/{name}"]["version"] for name in dependencies}
    for name, entry in packages.items():
        assert entry["integrity"].startswith("sha512-"), name
        assert "resolved" not in entry, name
