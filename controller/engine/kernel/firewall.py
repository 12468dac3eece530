"""The guard: Paddock's static nft table, loaded before Docker. Its rules: deploy/paddock-guard.nft; here they are read.

Two things are added to it, both at addresses that it would drop: name servers of this host, for port 53 alone, and the
operator's upstream proxy, for its port. It belongs in the engine's network namespace, which is the daemon's own on
every supported host.
"""

import json
import logging
import socket
import struct
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network, collapse_addresses, summarize_address_range
from typing import Any, Literal

from controller.engine.kernel.engine_rules import read_engine_rules
from controller.kinds.runtime.network import EngineRules, FirewallState

TABLE = "paddock"
LOAD = "load it: `nft -c -f deploy/paddock-guard.nft && nft -f deploy/paddock-guard.nft` (deploy/paddock-guard.service)"
# Rules of each chain in the form of `_rule`, in the order of the file. The host's own rules may be in between.
RULES: Mapping[str, tuple[str, ...]] = {
    "input": ("iifname == pdx-* drop paddock-in", "iifname == pdp-* jump to_host", "iifname == pdl-* jump to_host"),
    "to_host": ("ct accept paddock-in-answers", "drop paddock-in"),
    "forward": (
        "iifname == pd* nfproto == ipv6 drop paddock-ipv6",
        "oifname == pd* nfproto == ipv6 drop paddock-ipv6",
        "iifname == pdx-* oifname != pdx-* drop paddock-sealed",
        "oifname == pdx-* iifname != pdx-* drop paddock-sealed",
        "oifname == pdp-* drop paddock-into",
        "oifname == pdl-* drop paddock-into",
        "iifname == pdp-* jump outward",
        "iifname == pdl-* jump outward",
    ),
    "outward": (
        "oifname == docker0 drop paddock-across",
        "oifname == br-* drop paddock-across",
        "daddr == @special drop paddock-special",
        "iifname == pdp-* daddr == @private drop paddock-private",
    ),
}
# Networks that the sets must cover; they may contain more.
SETS: Mapping[str, tuple[str, ...]] = {
    "special": (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/3",
    ),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
}
_log = logging.getLogger(__name__)
_HOOKS = ("input", "forward")
_TIMEOUT_SECONDS = 10.0
_MOST_ADDRESSES = 256
# linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h
_NETLINK_NETFILTER = 12
_GET_GENERATION, _NEW_GENERATION = (10 << 8) | 16, (10 << 8) | 15
_REQUEST, _HEADER, _FAMILY, _ATTRIBUTE = 1, struct.Struct("=IHHII"), struct.Struct("=BBH"), struct.Struct("=HHI")
_ANSWER_SECONDS = 1.0


class NftFirewall:
    """ports.Firewall over the `nft` command.

    `resolvers` returns the name servers that the guard has to let through, `upstreams` the upstream proxies
    (`ADDRESS . PORT`) that alone it lets through (None: unknown now, and those that are there stay).
    """

    def __init__(
        self,
        command: tuple[str, ...] = ("nft",),
        resolvers: Callable[[], tuple[str, ...]] = lambda: (),
        upstreams: Callable[[], tuple[str, ...] | None] = lambda: (),
    ) -> None:
        self._command = command
        self._resolvers, self._upstreams = resolvers, upstreams
        self._failures: dict[str, str] = {}

    def guard(self) -> FirewallState:
        """Read the guard, and let through what it has to and does not. Never raises."""
        try:
            done = self._run("table", "inet", TABLE)
            if done.returncode:
                return self._without(done.stderr)
        except FileNotFoundError:
            return FirewallState("nft is not installed; `apt-get install nftables`, then " + LOAD)
        except (OSError, subprocess.TimeoutExpired) as error:
            return FirewallState(f"nft failed: {error}")
        state = judged(done.stdout)
        if not state.message:
            # Further name servers may be the operator's own; the upstream proxies are the daemon's alone.
            self._change("resolvers", "add", set(self._resolvers()) - set(state.resolvers))
            if (upstreams := self._upstreams()) is not None:
                self._change("upstreams", "add", set(upstreams) - set(state.upstreams))
                self._change("upstreams", "delete", set(state.upstreams) - set(upstreams))
        return state

    def _change(self, name: str, verb: Literal["add", "delete"], elements: set[str]) -> None:
        """Change a set of the guard. The change of its rules has it read again; a failure is logged once."""
        if not elements:
            return
        openings = sorted(elements)
        command = [*self._command, verb, "element", "inet", TABLE, name, "{", ", ".join(openings), "}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
            failure = (done.stderr.strip() or "no message").splitlines()[0] if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        if not failure:
            _log.info("%s of the guard: %s %s", name, verb, ", ".join(openings))
        elif failure != self._failures.get(name):
            _log.warning("%s of the guard: no %s %s: %s; %s", name, verb, ", ".join(openings), failure, LOAD)
        self._failures[name] = failure

    def engine_rules(self, subnets: Collection[str]) -> EngineRules:
        """Read the engine's own rules. Never raises."""
        return read_engine_rules(subnets)

    def generation(self) -> int | None:
        """Return the kernel's generation number of its rules; None if it can't be read. Never raises."""
        try:
            with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)) as link:
                link.settimeout(_ANSWER_SECONDS)
                length = _HEADER.size + _FAMILY.size
                link.send(_HEADER.pack(length, _GET_GENERATION, _REQUEST, 1, 0) + _FAMILY.pack(0, 0, 0))
                answer = link.recv(4096)
        except OSError:
            return None
        if len(answer) < length + _ATTRIBUTE.size or _HEADER.unpack_from(answer)[1] != _NEW_GENERATION:
            return None
        number: int = socket.ntohl(_ATTRIBUTE.unpack_from(answer, length)[2])
        return number

    def _run(self, *what: str) -> subprocess.CompletedProcess[str]:
        command = [*self._command, "-j", "list", *what]
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)

    def _without(self, stderr: str) -> FirewallState:
        """Return the guard if its table can't be listed: lost only if the kernel's list of tables lacks it."""
        message = (stderr.strip() or "no message").splitlines()[0]
        done = self._run("tables")
        try:
            tables = [] if done.returncode else [table["name"] for table in _of(_parts(done.stdout), "table")]
        except (ValueError, KeyError, TypeError):
            done.returncode, tables = 1, []
        lost = not done.returncode and TABLE not in tables
        return FirewallState(f"the nft table `inet {TABLE}` can't be read ({message}); {LOAD}", lost=lost)


def judged(listing: str) -> FirewallState:
    """Check a listing of the table (nft's JSON)."""
    try:
        parts = _parts(listing)
        lacking = [*_lacking_rules(parts), *_lacking_elements(parts)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return FirewallState("nft's answer can't be read; install nft 0.9.3 or newer")
    if not lacking:
        return FirewallState(
            resolvers=tuple(_addresses(parts, "resolvers")), upstreams=tuple(_endpoints(parts, "upstreams"))
        )
    return FirewallState(f"the nft table `inet {TABLE}` lacks {', '.join(dict.fromkeys(lacking))}; {LOAD}", lost=True)


def _lacking_rules(parts: list[dict[str, Any]]) -> Iterator[str]:
    hooks = {chain.get("hook") for chain in _of(parts, "chain")}
    yield from (f"the hook {hook}" for hook in _HOOKS if hook not in hooks)
    for chain, desired in RULES.items():
        rules = [_rule(rule) for rule in _of(parts, "rule") if rule["chain"] == chain]
        at = 0
        for rule in desired:
            if rule in rules[at:]:
                at = rules.index(rule, at) + 1
            else:
                yield f"the rule `{rule}` of {chain}"


def _lacking_elements(parts: list[dict[str, Any]]) -> Iterator[str]:
    networks_of_sets = {
        set_json["name"]: list(collapse_addresses(_networks(set_json.get("elem", ()))))
        for set_json in _of(parts, "set")
        if set_json["name"] in SETS
    }
    for name, desired in SETS.items():
        for network in desired:
            if not any(IPv4Network(network).subnet_of(range_of_set) for range_of_set in networks_of_sets.get(name, ())):
                yield f"{network} in the set {name}"


def _addresses(parts: list[dict[str, Any]], name: str) -> Iterator[str]:
    """Yield the addresses of a set; of an operator's own ranges those of small ones."""
    for network in _networks(
        element for set_json in _of(parts, "set") if set_json["name"] == name for element in set_json.get("elem", ())
    ):
        if network.num_addresses <= _MOST_ADDRESSES:
            yield from map(str, network)


def _endpoints(parts: list[dict[str, Any]], name: str) -> Iterator[str]:
    """Yield the elements `ADDRESS . PORT` of a set; none of a guard from before it had the set."""
    for set_json in _of(parts, "set"):
        for element in set_json.get("elem", ()) if set_json["name"] == name else ():
            concatenated = element["elem"]["val"] if "elem" in element else element
            yield " . ".join(map(str, concatenated["concat"]))


def _networks(elements: Any) -> Iterator[IPv4Network]:
    for element in elements:
        if isinstance(element, str):
            yield IPv4Network(element)
        elif "elem" in element:  # an element with a comment or a counter
            yield from _networks([element["elem"]["val"]])
        elif "prefix" in element:
            yield IPv4Network((element["prefix"]["addr"], element["prefix"]["len"]))
        else:
            first, last = element["range"]
            yield from summarize_address_range(IPv4Address(first), IPv4Address(last))


def _rule(rule: Mapping[str, Any]) -> str:
    """Return a rule in short: matches, verdict and comment, without counters and logging."""
    message: list[str] = []
    for expression in rule.get("expr", ()):
        (kind, operand), *_ = expression.items()
        if kind == "match":
            message.append(_match(operand))
        elif kind in ("accept", "drop"):
            message.append(kind)
        elif kind in ("jump", "goto"):
            message.append(f"{kind} {operand['target']}")
    return " ".join((*message, *([rule["comment"]] if rule.get("comment") else [])))


def _match(match: Mapping[str, Any]) -> str:
    operand, right = match["left"], match["right"]
    if "meta" in operand:
        return f"{operand['meta']['key']} {match['op']} {right}"
    if "payload" in operand:
        return f"{operand['payload'].get('field')} {match['op']} {right}"
    return str(next(iter(operand)))


def _parts(listing: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = json.loads(listing)["nftables"]
    return parts


def _of(parts: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    yield from (element[kind] for element in parts if kind in element)
