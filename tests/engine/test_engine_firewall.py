"""Guard: in force if all rules and sets are loaded; its loss is detected at once."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.engine.docker.view import View
from controller.engine.kernel.firewall import RULES, SETS, NftFirewall, judged
from controller.engine.kernel.resolvers import read_private_resolvers
from controller.engine.observe.guard_watch import GuardWatch
from controller.kinds.runtime.network import FirewallState
from tests.conftest import HandClock
from tests.contract.engine_hosts import docker_host

FILE = Path(__file__).parents[2] / "deploy" / "paddock-guard.nft"
Parts = list[dict[str, Any]]


def listing(change: Callable[[Parts], Parts] = lambda parts: parts) -> str:
    """Return nft 1.0.6's listing of the file's table, modified."""
    parts = json.loads((Path(__file__).parent / "guard.json").read_text())["nftables"]
    return json.dumps({"nftables": change(parts)})


def without_rule(index: int) -> str:
    def change(parts: Parts) -> Parts:
        rules = [document for document in parts if "rule" in document]
        return [document for document in parts if document is not rules[index]]

    return listing(change)


def with_elements(name: str, elements: list[Any]) -> str:
    def change(parts: Parts) -> Parts:
        for document in parts:
            if document.get("set", {}).get("name") == name:
                document["set"]["elem"] = elements
        return parts

    return listing(change)


def test_all_of_it_is_a_guard() -> None:
    assert judged(listing()) == FirewallState()


def needed() -> list[int]:
    """All rules but those that let answers and name servers through: without these more is dropped."""
    rules = [nftable["rule"] for nftable in json.loads(listing())["nftables"] if "rule" in nftable]
    anies = [any("accept" in piece for piece in rule["expr"]) for rule in rules]
    return [index for index, lets in enumerate(anies) if not lets]


@pytest.mark.parametrize("gone", needed())
def test_a_missing_rule_means_guard_lost(gone: int) -> None:
    firewall_state = judged(without_rule(gone))
    assert firewall_state.lost
    assert "lacks the rule" in firewall_state.message


def test_a_changed_verdict_is_reported() -> None:
    def change(parts: Parts) -> Parts:
        rule = next(
            document["rule"] for document in parts if document.get("rule", {}).get("comment") == "paddock-special"
        )
        rule["expr"][-1] = {"accept": None}
        return parts

    assert "paddock-special` of outward" in judged(listing(change)).message


@pytest.mark.parametrize("name", sorted(SETS))
@pytest.mark.parametrize("elements", [[], ["10.0.0.1"], [{"prefix": {"addr": "10.0.0.0", "len": 9}}]])
def test_an_emptied_set_means_guard_lost(name: str, elements: list[Any]) -> None:
    firewall_state = judged(with_elements(name, elements))
    assert firewall_state.lost
    assert f"in the set {name}" in firewall_state.message


def test_a_set_may_have_more_elements() -> None:
    halves = [{"prefix": {"addr": entry, "len": 9}} for entry in ("10.0.0.0", "10.128.0.0")]
    documents = [
        {"range": ["172.16.0.0", "172.31.255.255"]},
        {"elem": {"val": {"prefix": {"addr": "192.0.0.0", "len": 8}}}},
    ]
    assert judged(with_elements("private", [*halves, *documents, "203.0.113.1"])) == FirewallState()


def test_a_chain_without_its_hook_is_told() -> None:
    def change(parts: Parts) -> Parts:
        for document in parts:
            if document.get("chain", {}).get("name") == "forward":
                del document["chain"]["hook"]
        return parts

    assert "lacks the hook forward" in judged(listing(change)).message


def test_a_rule_of_the_hosts_own_changes_nothing() -> None:
    def change(parts: Parts) -> Parts:
        at = next(index for index, document in enumerate(parts) if "rule" in document)
        own_document = {"rule": {"chain": "input", "expr": [{"counter": {"packets": 0, "bytes": 0}}]}}
        return [*parts[:at], own_document, *parts[at:]]

    assert judged(listing(change)) == FirewallState()


@pytest.mark.parametrize(
    "answer", ["nonsense", "[]", '{"nftables": [{"rule": {"chain": "input", "expr": [{"match": {}}]}}]}']
)
def test_an_unreadable_listing_is_unknown_not_lost(answer: str) -> None:
    firewall_state = judged(answer)
    assert "can't be read" in firewall_state.message
    assert not firewall_state.lost


def test_without_nft_it_is_unknown_and_not_lost() -> None:
    guard = NftFirewall(("/nonexistent/nft",)).guard()
    assert "not installed" in guard.message
    assert not guard.lost


def test_a_failing_nft_is_unknown_not_lost() -> None:
    guard = NftFirewall(("false",)).guard()
    assert "can't be read" in guard.message
    assert not guard.lost


def test_checked_rules_match_the_file() -> None:
    text = FILE.read_text()
    for rules in RULES.values():
        for rule in rules:
            comment = rule.rsplit(" ", 1)[-1]
            assert f'comment "{comment}"' in text or f"jump {comment}" in text
    for name, desired in SETS.items():
        match = re.search(rf"set {name} {{.*?elements = {{ (.*?) }}", text, re.DOTALL)
        assert match is not None
        assert match[1].split(", ") == list(desired)


class CountedRules:
    """A firewall whose rules count their changes, or do not (None)."""

    def __init__(self, generation: int | None) -> None:
        self.count, self.now, self.reads = generation, FirewallState(), 0

    def guard(self) -> FirewallState:
        self.reads += 1
        return self.now

    def generation(self) -> int | None:
        return self.count


@pytest.mark.parametrize("counts", [True, False])
def test_a_loss_is_noticed_at_the_next_asking(clock: HandClock, counts: bool) -> None:
    rules, view = CountedRules(1 if counts else None), View(clock)
    watch = GuardWatch(rules, view)
    watch.read()
    assert (view.now.unguarded, view.now.guard_lost) == ("", False)
    rules.now = FirewallState("the table is gone", lost=True)
    rules.count = 2 if counts else None
    watch.follow()
    assert (view.now.unguarded, view.now.guard_lost) == ("the table is gone", True)


def test_unchanged_rules_are_not_read_again(clock: HandClock) -> None:
    rules = CountedRules(7)
    watch = GuardWatch(rules, View(clock))
    watch.read()
    for _ in range(10):
        watch.follow()
    assert rules.reads == 1


@pytest.mark.docker
def test_an_open_engine_detects_guard_loss() -> None:
    rules = CountedRules(1)
    with docker_host(firewall=rules) as host:
        host.settled()
        host.until(lambda: not host.engine.observe().unguarded)
        rules.now = FirewallState("the table is gone", lost=True)
        rules.count = 2
        host.until(lambda: host.engine.observe().guard_lost)


@pytest.mark.docker
@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft")
def test_the_file_loads_twice_and_a_loss_is_noticed() -> None:
    """In a network namespace of its own."""
    script = f"""
        import subprocess
        from controller.engine.kernel.firewall import NftFirewall
        upstreams = ["10.1.2.3 . 3128"]
        firewall, seen = NftFirewall(upstreams=lambda: None if upstreams == [""] else tuple(upstreams)), set()
        def nft(*command): subprocess.run(["nft", *command], check=True)
        def guard():
            number = firewall.generation()
            assert number is not None and number not in seen, (number, seen)
            seen.add(number)
            assert firewall.generation() == number
            return firewall.guard()
        assert guard().lost
        for _ in range(2):
            nft("-c", "-f", "{FILE}"), nft("-f", "{FILE}")
            assert guard().message == "", firewall.guard()
            assert guard().upstreams == ("10.1.2.3 . 3128",)
        upstreams[:] = [""]
        firewall.guard()
        assert firewall.guard().upstreams == ("10.1.2.3 . 3128",)
        upstreams[:] = ["10.1.2.4 . 3128"]
        firewall.guard()
        assert guard().upstreams == ("10.1.2.4 . 3128",)
        nft("flush", "set", "inet", "paddock", "private")
        assert guard().lost and "10.0.0.0/8 in the set private" in firewall.guard().message
        nft("-f", "{FILE}")
        nft("flush", "chain", "inet", "paddock", "forward")
        assert guard().lost and "paddock-into" in firewall.guard().message
        nft("flush", "ruleset")
        assert guard().lost and "can't be read" in firewall.guard().message
    """
    command = ["unshare", "--net", sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FILE.parents[1])
    assert done.returncode == 0, done.stderr


FILES = {
    "loopback": ({"etc/resolv.conf": "nameserver 127.0.0.1\n"}, ()),
    "public": ({"etc/resolv.conf": "nameserver 8.8.8.8\nnameserver 2001:4860:4860::8888\n"}, ()),
    "private": (
        {"etc/resolv.conf": "# nameserver 10.0.0.1\nnameserver 192.168.1.1 \nnameserver 8.8.8.8\n"},
        ("192.168.1.1",),
    ),
    "a cloud's": ({"etc/resolv.conf": "search x\nnameserver 169.254.169.253\n"}, ("169.254.169.253",)),
    "behind systemd's stub": (
        {"etc/resolv.conf": "nameserver 127.0.0.53\n", "run/systemd/resolve/resolv.conf": "nameserver 10.0.0.2\n"},
        ("10.0.0.2",),
    ),
    "the engine's own": (
        {"etc/resolv.conf": "nameserver 192.168.1.1\n", "etc/docker/daemon.json": '{"dns": ["10.0.0.3", "1.1.1.1"]}'},
        ("10.0.0.3",),
    ),
    "none": ({"etc/docker/daemon.json": "[]", "etc/resolv.conf": "nameserver\nnameserver x\n"}, ()),
    "no file": ({}, ()),
}


@pytest.mark.parametrize("case", FILES)
def test_private_resolvers_are_those_that_networks_ask(tmp_path: Path, case: str) -> None:
    files, expected = FILES[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_private_resolvers(tmp_path) == expected


def test_the_guard_says_which_resolvers_pass() -> None:
    elements = with_elements("resolvers", ["10.0.0.2", {"elem": {"val": "10.0.0.3", "comment": "ours"}}])
    assert judged(elements) == FirewallState(resolvers=("10.0.0.2", "10.0.0.3"))
    ranges = with_elements(
        "resolvers", [{"prefix": {"addr": "10.0.0.2", "len": 31}}, {"range": ["10.1.0.0", "10.9.0.0"]}]
    )
    assert judged(ranges).resolvers[:2] == ("10.0.0.2", "10.0.0.3")
