"""Package hosts from the host's configuration files, read like pip, npm and apt."""

from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from controller.engine.docker.client import Client
from controller.engine.images.image_answers import answer_of
from controller.engine.kernel.package_hosts import (
    default_addresses,
    read_package_hosts,
    read_registries,
    registry_hosts,
)
from controller.kinds.runtime.package_hosts import Registries
from controller.ports import NullMeter
from controller.settings import Settings
from tests.contract.engine_hosts import SOCKET, TINY

ALL = ("pip", "npm", "apt")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for entry in ("etc/apt/sources.list.d", "root/.config/pip", "home/ann/.pip"):
        (tmp_path / entry).mkdir(parents=True)
    return tmp_path


def hosts(root: Path, *tools: str, **env: str) -> tuple[str, ...]:
    return read_package_hosts(tools, root, env).hosts


def test_a_host_without_configuration_names_none(root: Path) -> None:
    package_hosts = read_package_hosts(ALL, root, {})
    assert (package_hosts.hosts, package_hosts.left_out) == ((), ())


def test_a_tool_without_configuration_is_asked(root: Path) -> None:
    defaults = {
        "pip": ("https://index.example.org/simple", "https://files.example.org"),
        "npm": ("https://npm.example.org/",),
    }

    def found(**env: str) -> tuple[str, ...]:
        return read_package_hosts(ALL, root, env, lambda tool: defaults.get(tool, ())).hosts

    pip, npm = ("files.example.org", "index.example.org"), ("npm.example.org",)
    assert found() == (*pip, *npm)
    assert found(PIP_EXTRA_INDEX_URL="https://more.example.org/") == (*pip, "more.example.org", *npm)
    assert found(PIP_INDEX_URL="https://own.example.org/") == (*npm, "own.example.org")
    assert found(npm_config_registry="https://own.example.org/") == (*pip, "own.example.org")


def test_pip_names_an_index_and_a_host_for_files() -> None:
    index, files = default_addresses("pip")
    assert index.startswith("https://")
    assert files.startswith("https://")
    assert default_addresses("apt") == ()


def test_a_tool_of_the_path_answers_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho https://npm.example.org/\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert default_addresses("npm") == ("https://npm.example.org/",)
    npm.write_text("#!/bin/sh\nexit 1\n")
    assert default_addresses("npm") == ()


def test_npm_of_an_image_answers_where_the_host_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    questions: list[tuple[str, tuple[str, ...]]] = []

    def ask_image(image: str, command: tuple[str, ...]) -> str:
        questions.append((image, command))
        return "https://npm.example.org/"

    assert default_addresses("npm", ask_image) == ("https://npm.example.org/",)
    assert default_addresses("apt", ask_image) == ()
    assert questions == [("paddock/node:1", ("npm", "config", "get", "registry"))]


@pytest.mark.docker
def test_a_program_of_an_image_answers_without_a_network() -> None:
    client = Client(SOCKET, meter=NullMeter(), timeout_seconds=20)
    with closing(client):
        assert answer_of(client, TINY, ("sh", "-c", "echo https://npm.example.org/; ls /sys/class/net")) == (
            "https://npm.example.org/\nlo"
        )
        assert answer_of(client, TINY, ("sh", "-c", "echo x; exit 1")) == ""
        assert answer_of(client, "paddock/absent:1", ("true",)) == ""


def test_pip_by_its_files_and_variables(root: Path) -> None:
    (root / "etc/pip.conf").write_text("[global]\nindex-url = https://host.example.org/simple\n[list]\nformat=x\n")
    assert hosts(root, "pip") == ("host.example.org",)
    (root / "root/.config/pip/pip.conf").write_text(
        "[global]\nindex_url = https://ann:secret@user.example.org/simple\n"
        "extra-index-url =\n  https://one.example.org/x\n  file:///opt/wheels\n[install]\nfind-links = /opt/wheels\n"
    )
    assert hosts(root, "pip") == ("one.example.org", "user.example.org")
    assert hosts(root, "pip", PIP_INDEX_URL="https://env.example.org/") == ("env.example.org", "one.example.org")
    assert hosts(root, "pip", HOME="/home/ann") == ("host.example.org",)
    (root / "srv.conf").write_text("[global]\nindex-url = https://named.example.org\n")
    assert hosts(root, "pip", HOME="/home/ann", PIP_CONFIG_FILE="/srv.conf") == ("named.example.org",)
    assert hosts(root, "pip", PIP_CONFIG_FILE="/dev/null") == ()
    (root / "etc/pip.conf").write_text("no section = here\n")
    assert hosts(root, "pip", HOME="/home/ann") == ()


def test_npm_by_its_files_and_variables(root: Path) -> None:
    (root / "etc/npmrc").write_text("registry=https://host.example.org/\n; registry=https://off.example.org/\n")
    (root / "root/.npmrc").write_text(
        '@ours:registry = "https://${WHERE}.example.org/npm/"\n//host.example.org/:_authToken=secret\n'
    )
    assert hosts(root, "npm", WHERE="scope") == ("host.example.org", "scope.example.org")
    assert hosts(root, "npm", WHERE="scope", npm_config_registry="https://env.example.org") == (
        "env.example.org",
        "scope.example.org",
    )


def test_apt_by_both_its_formats(root: Path) -> None:
    apt = root / "etc/apt"
    (apt / "sources.list").write_text(
        "# deb http://off.example.org/ x main\ndeb [arch=amd64 signed-by=/k] http://one.example.org/debian x main\n"
        "deb-src https://two.example.org/ x main # here\ndeb cdrom:[Debian]/ x main\ndeb file:/srv/apt ./\n"
    )
    (apt / "sources.list.d/more.sources").write_text(
        "# a comment\nTypes: deb\nURIs: http://three.example.org/debian\n  mirror+https://four.example.org/list\n"
        "Suites: x\n\nEnabled: no\nTypes: deb\nURIs: http://off.example.org\nSuites: x\n"
    )
    (apt / "sources.list.d/more.disabled").write_text("deb http://off.example.org/ x main\n")
    names = ("one", "two", "three", "four")
    assert hosts(root, "apt") == tuple(sorted(f"{name}.example.org" for name in names))


def test_unreachable_package_hosts_are_reported(root: Path) -> None:
    (root / "etc/pip.conf").write_text(
        "[global]\nindex-url = http://192.0.2.7/simple\nextra-index-url = https://ann:secret@far.example.org:8443/x\n"
        "find-links = http://localhost/ http://[::1\n"
    )
    package_hosts = read_package_hosts(["pip"], root, {})
    assert package_hosts.hosts == ()
    message = " | ".join(package_hosts.left_out)
    assert "192.0.2.7 is an IP address" in message
    assert "far.example.org: port 8443 is not allowed" in message
    assert "localhost is not a full name" in message
    assert "the address is malformed" in message
    assert "secret" not in message


def test_only_requested_tools_are_read(root: Path) -> None:
    (root / "etc/npmrc").write_text("registry=https://host.example.org/\n")
    assert hosts(root, "pip", "apt") == ()


def test_registries_are_those_that_the_tools_install_from(root: Path) -> None:
    assert read_registries(root, {}) == Registries()
    (root / "etc/npmrc").write_text("registry=https://ann:secret@host.example.org/npm/\n@ours:registry=https://x.org\n")
    (root / "etc/pip.conf").write_text("[global]\nindex-url = https://host.example.org/simple\nfind-links = /opt\n")
    registries = read_registries(root, {})
    assert registries == Registries("https://host.example.org/npm/", "https://host.example.org/simple")
    assert registry_hosts(registries) == ("host.example.org", "host.example.org")
    local = {"PIP_INDEX_URL": "file:///opt/simple", "npm_config_registry": "https://env.example.org:8081"}
    assert read_registries(root, local) == Registries("https://env.example.org:8081", "")
    assert registry_hosts(read_registries(root, local)) == (), "sandboxes reach ports 80 and 443 only"


@pytest.mark.parametrize("value", ["https://a.example.org:8081/", "ftp://a.example.org", "https://u:p@a.example.org/"])
def test_a_registry_that_no_sandbox_reaches_is_no_setting(value: str) -> None:
    with pytest.raises(ValidationError, match="sandboxes reach nothing else"):
        Settings(npm_registry=value)
    assert Settings(pypi_index="https://a.example.org/simple").install_rules().registries.pypi.endswith("/simple")
