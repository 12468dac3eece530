"""A sandbox without a network is made without the engine's: half the start, and the same inside."""

from collections.abc import Iterator

import pytest

from controller.engine.docker.create_config import network_files
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.action import ConnectNetwork, DisconnectNetwork
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.policy.attest.attest import differing, facts
from tests.contract.engine_hosts import EngineHost, docker_host, ok
from tests.daemon import docker

CONFIG = ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "web", dns_options=("timeout:1",), models=True)


def test_files_name_the_sandbox_and_its_gateway() -> None:
    files = network_files(CONFIG)
    assert files["hosts"].splitlines()[0] == "127.0.0.1\tlocalhost"
    assert files["hosts"].splitlines()[-2:] == ["127.0.0.1\tweb", "127.0.0.1\tmodels.paddock.internal"]
    assert files["resolv.conf"] == "nameserver 127.0.0.1\noptions timeout:1\n"
    assert files["hostname"] == "web\n"


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.fixture
def sandbox(host: EngineHost) -> Container:
    return host.running(host.new_uid())


@pytest.mark.docker
def test_engine_makes_it_without_networks(host: EngineHost, sandbox: Container) -> None:
    form = "{{.Config.NetworkDisabled}} {{.HostConfig.MemorySwappiness}} {{len .NetworkSettings.Networks}}"
    parts = docker("inspect", "--format", form, sandbox.id).split()
    swappiness = "0" if host.engine.observe().facts.cgroup_version == "1" else "<nil>"
    assert parts == ["true", swappiness, "0"]
    assert sandbox.networks == ("none",)


@pytest.mark.docker
def test_local_names_resolve_and_only_loopback_exists(host: EngineHost, sandbox: Container) -> None:
    hosts = docker("exec", sandbox.id, "cat", "/etc/hosts", "/etc/resolv.conf")
    assert docker("exec", sandbox.id, "cat", "/etc/hostname") == host.create(sandbox.uid).config.hostname
    assert "127.0.0.1\tlocalhost\n" in hosts
    assert f"127.0.0.1\t{host.create(sandbox.uid).config.hostname}\n" in hosts
    assert hosts.endswith("nameserver 127.0.0.1")
    assert docker("exec", sandbox.id, "cat", "/sys/class/net/lo/flags") == "0x9", "up and loopback"
    assert sandbox.inside is not None
    assert differing(facts(host.create(sandbox.uid).config, sandbox.inside)) == ""


@pytest.mark.docker
def test_attachment_by_somebody_is_taken_back(host: EngineHost, sandbox: Container) -> None:
    docker("network", "connect", "bridge", sandbox.id, check=False)
    host.engine.observe_now(full=True)
    if not docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.EndpointID}}{{end}}", sandbox.id):
        assert host.only(sandbox.uid).networks == ("none",), "newer engines attach nothing, and list it all the same"
        return
    assert host.only(sandbox.uid).networks == ("bridge",)
    ok(host.engine.act(DisconnectNetwork(sandbox.uid, sandbox.name, sandbox.id, "bridge", "a test")))
    ok(host.engine.act(ConnectNetwork(sandbox.uid, sandbox.name, sandbox.id, "none", "a test")))
    container = host.only(sandbox.uid)
    assert (container.networks, container.state) == (("none",), State.RUNNING)
