"""Names, addresses and the proxy's configuration."""

from dataclasses import fields
from ipaddress import IPv4Network

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import ValidationError

from controller.kinds.common.labels import egress_name, egress_uid, is_container_name, sealed_name
from controller.kinds.sandbox import NetworkSpec
from controller.policy.network import egress

UID = "0a1b2c3d-0000-4000-8000-000000000000"
RANGE = "10.213.0.0/20"


@pytest.mark.parametrize("host", ["git.example.org", "*.example.org", "a-b.c1.example", "_dmarc.example.org"])
def test_whole_host_names_are_accepted(host: str) -> None:
    assert NetworkSpec.model_validate({"allowedHosts": [host]}).allowed_hosts == (host,)


@pytest.mark.parametrize(
    "host",
    [
        "*",
        "*.*",
        "git.*.org",
        "*git.example.org",
        "localhost",
        "192.0.2.1",
        "3221225985",
        "::1",
        "[::1]",
        "git.example.org.",
        "git.example.org:443",
        "https://git.example.org",
        "user@git.example.org",
        "GIT.example.org",
        ".example.org",
        "git example.org",
        "git.example.org\nhttp_access allow all",
        "git.example.org|.*",
        "a..b",
        "0x7f.1",
    ],
)
def test_partial_host_names_are_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        NetworkSpec.model_validate({"allowedHosts": [host]})


def test_names_are_checked_before_resolving() -> None:
    lines = egress.squid_conf(["git.example.org"]).splitlines()
    rules = [line for line in lines if line.startswith("http_access")]
    assert rules.index("http_access deny !listed") < rules.index("http_access deny special")
    assert rules[-1] == "http_access deny all"
    assert [rule for rule in rules if " allow " in rule] == ["http_access allow listed"]
    assert [line for line in lines if line.startswith("ssl_bump")] == [
        "ssl_bump peek first",
        "ssl_bump splice second listed_sni named",
        "ssl_bump terminate all",
    ]


def test_names_match_whole_and_wildcards_exclude_the_parent() -> None:
    lines = egress.squid_conf(["git.example.org", "*.example.net"]).splitlines()
    assert [line for line in lines if line.startswith("acl listed ")] == [
        r"acl listed dstdom_regex -n -i ^([a-z0-9_-]+\.)+example\.net$",
        r"acl listed dstdom_regex -n -i ^git\.example\.org$",
    ]


def test_an_empty_list_allows_nothing() -> None:
    assert "acl listed dstdom_regex -n -i ^$" in egress.squid_conf([]).splitlines()


def test_only_an_upstream_proxy_adds_its_lines() -> None:
    lines, behind = egress.squid_conf(["a.example.org"]), egress.squid_conf(["a.example.org"], upstream="10.1.2.3:3128")
    addition = [line for line in behind.splitlines() if line not in lines.splitlines()]
    assert addition == [
        "cache_peer 10.1.2.3 parent 3128 0 no-query no-digest no-netdb-exchange name=upstream",
        "cache_peer_access upstream allow all",
        "never_direct allow all",
        "dns_timeout 2 seconds",
    ]
    assert [line for line in behind.splitlines() if line not in addition] == lines.splitlines()


def test_the_longest_list_fits_execve() -> None:
    name = ".".join(["a" * 60] * 4)
    hosts = [f"*.x{number:03}{name}"[:246] + ".example"[:7] for number in range(128)]
    assert len(egress.squid_conf(hosts)) < (128 << 10) - 100


@given(uids=st.lists(st.uuids().map(str), min_size=1, max_size=40, unique=True))
def test_subnets_never_overlap_each_other_or_the_uplink(uids: list[str]) -> None:
    occupied: set[str] = set()
    for uid in uids:
        subnet = egress.subnet_for(uid, RANGE, occupied)
        assert subnet
        assert subnet not in occupied
        occupied.add(subnet)
    networks = [IPv4Network(name) for name in (*occupied, egress.uplink(RANGE).subnet)]
    assert all(network.subnet_of(IPv4Network(RANGE)) for network in networks)
    assert not [1 for a in networks for b in networks if a != b and a.overlaps(b)]


def test_a_full_range_has_no_subnet_left() -> None:
    occupied: set[str] = set()
    while subnet := egress.subnet_for(UID, "10.213.0.0/21", occupied):
        occupied.add(subnet)
    assert len(occupied) == 64
    assert egress.subnet_for(UID, "10.213.0.0/24", ()) == ""


def test_the_proxy_has_an_address_that_no_sandbox_is_given() -> None:
    way = egress.sealed(UID, [])
    bridge = way.bridge("10.213.4.16/28")
    assert egress.proxy_address(bridge.subnet) == "10.213.4.18"
    assert bridge.handed_out == "10.213.4.24/29"
    assert bridge.sealed


def test_names_fit_the_kernel_and_follow_from_the_uid() -> None:
    assert sealed_name(UID) == "pdx-0a1b2c3d"
    assert len(egress.UPLINK) <= 15
    assert egress_uid(UID) != UID
    assert egress_name(egress_uid(UID)) == egress_name(UID) == "egress-0a1b2c3d"
    assert is_container_name("egress-0a1b2c3d", egress_uid(UID))
    assert not is_container_name("egress-0a1b2c3e", egress_uid(UID))


def test_the_egress_container_is_no_wider_than_any_level() -> None:
    config = egress.sealed(UID, ["git.example.org"]).egress
    assert (config.user, config.capabilities, config.read_only_root) == ("13:13", (), True)
    assert dict(config.sysctls)["net.ipv4.ip_forward"] == "0"
    assert config.security_options == ("no-new-privileges:true",)


def test_a_changed_list_recreates_only_the_egress_container() -> None:
    sealed, second = egress.sealed(UID, ["a.example"]), egress.sealed(UID, ["b.example"])
    assert sealed.egress.hash() != second.egress.hash()
    sandbox = egress.sealed(UID, []).egress
    assert egress.behind(sandbox, sealed) == egress.behind(sandbox, second)


def test_a_proxy_of_its_own_is_not_overwritten() -> None:
    config = egress.sealed(UID, []).egress
    own_config = type(config)(
        **{field.name: getattr(config, field.name) for field in fields(config)} | {"env": (("HTTP_PROXY", "x"),)}
    )
    behind = dict(egress.with_proxy_address(egress.behind(own_config, egress.sealed(UID, [])), "10.213.4.16/28").env)
    assert behind["HTTP_PROXY"] == "x"
    assert behind["https_proxy"] == "http://10.213.4.18:3128"
