"""The engine's own firewall rules: read of every kind, and missed when somebody flushed them."""

import json
import shutil
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault, outcome_of
from controller.engine.docker.networks import Networks
from controller.engine.docker.view import View
from controller.engine.kernel.engine_rules import forwarded_by, read_engine_rules, translated_by, translated_by_nft
from controller.engine.kernel.firewall import NftFirewall
from controller.engine.observe.canary import DockerCanary
from controller.kinds.common.labels import container_labels
from controller.kinds.planning.outcome import Ok, Transient
from controller.kinds.runtime.network import EngineRules, EnsureNetwork, Network, NetworkConfig
from controller.policy.network.canary import canary
from controller.ports import NullMeter
from tests.conftest import HandClock
from tests.lab.engine import private_engine

NAT = """\
-P POSTROUTING ACCEPT
-A POSTROUTING -s 10.213.0.0/28 ! -o pdp-a -j MASQUERADE
-A POSTROUTING ! -s 10.9.0.0/16 -o eth0 -j MASQUERADE
-A POSTROUTING -s 10.213.1.0/24 -o eth0 -j SNAT --to-source 192.0.2.1
-A POSTROUTING -s 10.8.0.0/16 -j ACCEPT
"""
FILTER = """\
-P FORWARD DROP
-A FORWARD -o pdp-a -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i pdp-a ! -o pdp-a -j ACCEPT
-A FORWARD -i pdp-b -o pdp-b -j DROP
-A DOCKER-FORWARD -i pdp-c -j ACCEPT
"""
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
SADDR6 = {"payload": {"protocol": "ip6", "field": "saddr"}}
NFT = [
    {"match": {"op": "==", "left": SADDR, "right": {"prefix": {"addr": "10.7.0.0", "len": 16}}}},
    {"masquerade": None},
]


def test_translated_sources_are_those_of_the_rules() -> None:
    assert list(translated_by(NAT.splitlines())) == [IPv4Network("10.213.0.0/28"), IPv4Network("10.213.1.0/24")]
    assert list(translated_by(["-A POSTROUTING -o eth0 -j MASQUERADE"])) == [IPv4Network("0.0.0.0/0")]


def test_forwarded_bridges_are_those_of_the_rules() -> None:
    assert forwarded_by(FILTER.splitlines()) == ({"pdp-a", "pdp-c"}, False)
    assert forwarded_by(["-P FORWARD ACCEPT"]) == (set(), True)


def test_rules_of_nft_itself_count() -> None:
    listing = {"nftables": [{"metainfo": {}}, {"rule": {"expr": NFT}}, {"rule": {"expr": [{"accept": None}]}}]}
    assert list(translated_by_nft(json.dumps(listing))) == [IPv4Network("10.7.0.0/16")]


@pytest.mark.parametrize("family", ["ip6", "inet"])
def test_rules_of_ipv6_hide_no_others(family: str) -> None:
    match = {"op": "==", "left": SADDR6, "right": {"prefix": {"addr": "fd00::", "len": 64}}}
    rules = [{"family": family, "expr": [{"match": match}, {"masquerade": None}]}, {"family": "ip", "expr": NFT}]
    listing = json.dumps({"nftables": [{"rule": rule} for rule in rules]})
    assert list(translated_by_nft(listing)) == [IPv4Network("10.7.0.0/16")]


@pytest.mark.parametrize(
    ("extension", "leads_out"),
    [({"type": "target", "name": "MASQUERADE"}, True), (None, None)],
    ids=["named", "of an older nft"],
)
def test_without_iptables_its_rules_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: object, leads_out: bool | None
) -> None:
    listing = json.dumps({"nftables": [{"rule": {"family": "ip", "expr": [NFT[0], {"xt": extension}]}}]})
    nft = tmp_path / "nft"
    nft.write_text(f"#!/bin/sh\necho '{listing}'\n")
    nft.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_engine_rules({"10.7.0.0/28"}).leads_out("pdp-a", "10.7.0.0/28") is leads_out


@pytest.mark.parametrize(
    ("rules", "leads_out"),
    [
        (EngineRules(frozenset({IPv4Network("10.0.0.0/8")}), frozenset(), True), True),
        (EngineRules(frozenset({IPv4Network("10.0.0.0/28")}), frozenset({"pdp-a"}), False), True),
        (EngineRules(frozenset({IPv4Network("10.0.0.0/28")}), frozenset({"pdp-b"}), False), False),
        (EngineRules(frozenset({IPv4Network("10.0.1.0/28")}), frozenset({"pdp-a"})), False),
        (EngineRules(unread="iptables: not permitted"), None),
    ],
)
def test_bridge_leads_out_by_both_kinds_of_rules(rules: EngineRules, leads_out: bool | None) -> None:
    assert rules.leads_out("pdp-a", "10.0.0.0/28") is leads_out


def ensure(name: str, subnet: str) -> EnsureNetwork:
    config = NetworkConfig(name, subnet, sealed=False)
    labels = container_labels(
        instance="i", uid="u", namespace="", name="", role="public", generation=0, config_hash="h", template_hash=""
    )
    return EnsureNetwork("u", config, labels, "a test")


@pytest.mark.docker
@pytest.mark.skipif(not shutil.which("iptables"), reason="needs iptables")
def test_flushed_rules_and_a_removed_bridge_are_noticed() -> None:
    with private_engine(images=()) as private:
        view = View(HandClock())
        client = Client(private.base_url, meter=NullMeter(), timeout_seconds=20)
        networks = Networks("i", client, view, NftFirewall())

        def read() -> Network:
            networks.observe_now()
            return view.now.networks["pdp-one"]

        def here() -> None:
            assert networks.ensure(ensure("pdp-one", "10.213.9.0/28")) == Ok()
            assert (read().leads_out, read().is_linked) == (True, True)
            private.namespaces.run("iptables", "-t", "nat", "-F", "POSTROUTING")
            assert read().leads_out is False
            private.namespaces.run("nft", "add", "table", "ip", "mine")
            chain = "{ type nat hook postrouting priority 100 ; }"
            private.namespaces.run("nft", "add", "chain", "ip", "mine", "out", chain)
            private.namespaces.run("nft", "add", "rule", "ip", "mine", "out", "ip saddr 10.213.0.0/16 masquerade")
            assert read().leads_out is True
            private.namespaces.run("nft", "flush", "ruleset")
            assert read().leads_out is False
            with pytest.raises(Fault) as refusal:
                networks.ensure(ensure("pdp-two", "10.213.9.16/28"))
            tried = DockerCanary("i", client).observe_now(canary(), "10.213.0.0/16")
            assert "systemctl restart docker" in tried.trouble
            outcome = outcome_of(refusal.value)
            assert isinstance(outcome, Transient)
            assert outcome.reason == "EngineRulesLost"
            private.namespaces.run("ip", "link", "del", "pdp-one")
            assert read().is_linked is False
            private.end()
            private.start()
            assert networks.ensure(ensure("pdp-one", "10.213.9.0/28")) == Ok()
            assert (read().leads_out, read().is_linked) == (True, True)

        try:
            private.namespaces.within(here)
        finally:
            client.close()
