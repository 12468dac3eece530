"""A name server of the host at a private address: let through the guard, for port 53 alone; names without address."""

import json
from collections.abc import Iterator

import pytest

from tests.daemon import RunningDaemon, wait_for
from tests.lab import inet
from tests.lab.internet import Lab, impossible
from tests.security.test_sealed import SealedSandbox, ready

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(impossible()), reason=impossible() or "never"),
]


@pytest.fixture(scope="module")
def daemon(place: Lab) -> Iterator[RunningDaemon]:
    place.set_resolver(inet.LAN10)
    created = place.daemon_with_resolver(place.folder / "resolvers")
    yield created
    created.stop()


@pytest.fixture(scope="module")
def sandbox(place: Lab, daemon: RunningDaemon) -> SealedSandbox:
    return ready(place, daemon, "dev", ["git.example.org", "nowhere.example.org", "lan.example.org"])


def resolvers(place: Lab) -> list[str]:
    parts = json.loads(place.host.run("nft", "-j", "list", "set", "inet", "paddock", "resolvers"))["nftables"]
    return [entry for piece in parts for entry in piece.get("set", {}).get("elem", ())]


def test_a_private_resolver_answers_the_proxy(place: Lab, sandbox: SealedSandbox) -> None:
    assert resolvers(place) == [inet.LAN10]
    before = place.mark()
    assert sandbox.tries(
        ["get", sandbox.proxy, "http://lan.example.org/"], ["get", sandbox.proxy, "http://git.example.org/"]
    ) == [
        "403",
        "200",
    ]
    assert {port for to, port in place.packets(before) if to == inet.LAN10} <= {53}


def test_a_guard_that_is_loaded_again_gets_it_again(place: Lab, sandbox: SealedSandbox) -> None:
    place.guard()
    wait_for("it is let through", lambda: resolvers(place) == [inet.LAN10])
    sandbox.until_proxied()


def test_a_failure_of_dns_is_no_refusal(daemon: RunningDaemon, sandbox: SealedSandbox) -> None:
    tunnel = ["tls", sandbox.proxy, "nowhere.example.org", 443, "nowhere.example.org"]
    tries = sandbox.tries(
        ["get", sandbox.proxy, "http://nowhere.example.org/"], tunnel, ["get", sandbox.proxy, "http://no.org/"]
    )
    assert (tries[0][:1], tries[2]) == ("5", "403")

    def told() -> set[tuple[str, ...]]:
        lines = daemon.paddock("logs", sandbox.name, "--egress").stdout.splitlines()
        return {tuple(line.split()[1:4]) for line in lines}

    requested = (("GET", 80), ("CONNECT", 443))
    expected = {("unresolved", method, f"nowhere.example.org:{port}") for method, port in requested}
    wait_for("both are told", lambda: expected <= told())
    assert ("refused", "GET", "no.org:80") in told()
    assert not {group for group in told() if group[0] == "refused" and "nowhere" in group[2]}
