"""Authorities of this host's own, and who trusts them: new sandboxes with a network, and nobody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.mounts.host_authorities import own_authorities
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.policy.container.credentials import AUTHORITIES, HOST_AUTHORITIES, trusting_host, trusts_host
from tests.contract.engine_hosts import EngineHost, docker_host
from tests.daemon import docker

PUBLIC = "-----BEGIN CERTIFICATE-----\npublic\n-----END CERTIFICATE-----\n"
OWN = PUBLIC.replace("public", "own")
CONFIG = ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "a", network_mode="pdx-a")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))  # of this machine
    bundle = tmp_path / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True)
    bundle.write_text(PUBLIC)
    return tmp_path


def test_a_host_without_its_own_adds_none(root: Path) -> None:
    assert own_authorities(root, {}) == b""
    assert own_authorities(root, {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}) == b""
    (root / "own.pem").write_text("no certificate")
    assert own_authorities(root, {"PIP_CERT": "/own.pem"}) == b""


@pytest.mark.parametrize("folder", ["usr/local/share/ca-certificates/corp", "etc/pki/ca-trust/source/anchors"])
def test_an_administrators_authority_is_trusted_too(root: Path, folder: str) -> None:
    (root / folder).mkdir(parents=True)
    (root / folder / "own.crt").write_text(OWN)
    assert own_authorities(root, {}).decode().split("\n\n") == [PUBLIC.strip(), OWN]
    (root / "etc/ssl/certs/ca-certificates.crt").write_text(PUBLIC + OWN)
    assert own_authorities(root, {}).decode() == PUBLIC + OWN, "as update-ca-certificates leaves it"


def test_authorities_named_by_variables_are_trusted(root: Path) -> None:
    (root / "own.pem").write_text(OWN)
    assert OWN.encode() in own_authorities(root, {"REQUESTS_CA_BUNDLE": "/own.pem"})


def test_values_of_spec_and_image_stay() -> None:
    config = trusting_host(CONFIG, {"CURL_CA_BUNDLE": "/corp.pem", "NODE_EXTRA_CA_CERTS": "/etc/ssl/cert.pem"})
    env = dict(config.env)
    assert (env["PIP_CERT"], env["NODE_EXTRA_CA_CERTS"]) == (HOST_AUTHORITIES, HOST_AUTHORITIES)
    assert "CURL_CA_BUNDLE" not in env
    own_config = ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "a", network_mode="pdx-a", env=(("PIP_CERT", "/x"),))
    assert dict(trusting_host(own_config, {}).env)["PIP_CERT"] == "/x"


def test_only_networked_sandboxes_without_credentials_trust_it() -> None:
    assert trusts_host(CONFIG)
    assert not trusts_host(ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "a"))
    by_name = (("SSL_CERT_FILE", AUTHORITIES),)
    assert not trusts_host(ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "a", network_mode="pdx-a", env=by_name))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHost]:
    (tmp_path / "own.pem").write_text(OWN)
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "own.pem"))
    with docker_host(authorities_dir=tmp_path / "host-ca") as created:
        yield created.settled()


@pytest.mark.docker
def test_the_engine_gives_a_sandbox_the_file(host: EngineHost) -> None:
    sandbox = host.running(host.new_uid(), network_mode="bridge")
    output = docker("exec", sandbox.id, "sh", "-c", 'tail -n 2 "$PIP_CERT"; touch "$PIP_CERT" || true')
    assert output.splitlines() == OWN.splitlines()[1:]
    assert sandbox.config_hash == host.create(sandbox.uid, network_mode="bridge").config.hash()
    alone = host.running(host.new_uid())
    assert docker("exec", alone.id, "sh", "-c", 'echo "[$PIP_CERT]"; ls /etc').split()[0] == "[]"
