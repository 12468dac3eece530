"""Outcomes of requests to hosts, and the rules that decide them: those of the proxy's configuration."""

import re

import pytest

from controller.policy.network.check import Reach, check
from controller.policy.network.egress import squid_conf

LISTED = Reach("development", "sealed", requested_hosts=("git.example.org", "*.wild.example.net"))
BUILD = Reach("build", "sealed", level_hosts=("files.example.org", "index.example.org"))


@pytest.mark.parametrize(
    ("reach", "host", "port", "is_allowed", "rule"),
    [
        (LISTED, "git.example.org", 443, True, "spec.network.allowedHosts: `git.example.org`"),
        (LISTED, "a.b.wild.example.net", 80, True, "spec.network.allowedHosts: `*.wild.example.net`"),
        (LISTED, "wild.example.net", 443, False, "spec.network.allowedHosts"),
        (LISTED, "other.example.org", 443, False, "spec.network.allowedHosts"),
        (LISTED, "git.example.org", 22, False, "ports of the proxy"),
        (LISTED, "192.0.2.7", 443, False, "names alone"),
        (LISTED, "db.peers.internal", 5432, False, "spec.network.peers"),
        (Reach("development", "sealed", peers=True), "db.peers.internal", 5432, True, "spec.network.peers"),
        (Reach("development", "sealed"), "git.example.org", 443, False, "spec.network.allowedHosts"),
        (BUILD, "index.example.org", 443, True, "hosts of level build: `index.example.org`"),
        (BUILD, "git.example.org", 443, False, "hosts of level build"),
        (Reach("full-isolation", "none"), "git.example.org", 443, False, "level full-isolation: no network"),
        (Reach("production", "public"), "git.example.org", 22, True, "level production: the whole Internet"),
        (Reach("production", "public"), "10.0.0.1", 443, False, "the guard"),
        (Reach("production", "public", local_network=True), "10.0.0.1", 443, True, "spec.network.localNetwork"),
    ],
)
def test_a_verdict_names_its_rule(reach: Reach, host: str, port: int, is_allowed: bool, rule: str) -> None:
    verdict = check(host, port, reach)
    assert (verdict.is_allowed, verdict.rule) == (is_allowed, rule)


def test_a_narrowed_list_of_build_decides() -> None:
    narrowed = Reach("build", "sealed", requested_hosts=("files.example.org",), level_hosts=BUILD.level_hosts)
    assert check("files.example.org", 443, narrowed).is_allowed
    assert check("index.example.org", 443, narrowed).rule == "spec.network.allowedHosts"


@pytest.mark.parametrize("host", ["git.example.org", "a.wild.example.net", "wild.example.net", "xgit.example.org"])
def test_verdicts_are_those_of_the_proxys_patterns(host: str) -> None:
    listed = [
        line.split()[-1]
        for line in squid_conf(LISTED.requested_hosts or ()).splitlines()
        if line.startswith("acl listed ")
    ]
    assert check(host, 443, LISTED).is_allowed == any(re.search(name, host) for name in listed)
