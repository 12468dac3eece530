"""Rules of the engine that lead its bridges to the Internet: read, never written.

The engine writes them when it makes a bridge, and not again before its next start. Whoever flushes the host's firewall
removes them: then a bridge leads nowhere, and the engine makes no new one.
"""

import json
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.kinds.runtime.network import EngineRules

_TIMEOUT_SECONDS = 10.0
_IPTABLES = ("iptables", "iptables-legacy")
_LEGACY = Path("/proc/net/ip_tables_names")
_ANY = IPv4Network("0.0.0.0/0")
_TRANSLATING = ("MASQUERADE", "SNAT")


def read_engine_rules(subnets: Collection[str]) -> EngineRules:
    """Read the rules of iptables, of both kinds; and nft's own, which newer engines use, for what those leave open.

    Never raises. `subnets` are those of the bridges.
    """
    translated: set[IPv4Network] = set()
    forwarded: set[str] = set()
    forwards_all, unread, absent = True, "", ""
    for command in _IPTABLES if _is_legacy_loaded() else _IPTABLES[:1]:
        try:
            translated.update(translated_by(_lines(command, "-t", "nat", "-S", "POSTROUTING")))
            bridges, is_open = forwarded_by(_lines(command, "-S"))
        except FileNotFoundError:  # a daemon in a container may lack what the engine has
            absent = absent or command
            continue
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            unread = f"{command}: {error}"
            continue
        forwarded |= bridges
        forwards_all = forwards_all and is_open
    rules = EngineRules(frozenset(translated), frozenset(forwarded), forwards_all, unread)
    if all(map(rules.translates, subnets)):
        return rules
    try:
        listing = _run("nft", "-j", "list", "ruleset")
        rules = replace(rules, translated=rules.translated.union(translated_by_nft(listing)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError) as error:
        return replace(rules, unread=unread or f"nft: {error}")
    if absent and (absent in _IPTABLES[1:] or '"xt"' in listing):
        return replace(rules, unread=unread or f"{absent} is not installed here, and this host has rules of it")
    return rules


def translated_by(lines: Sequence[str]) -> Iterator[IPv4Network]:
    """Yield the sources whose connections are translated, of rules as iptables prints them."""
    for line in lines:
        tokens = line.split()
        if tokens[:1] == ["-A"] and tokens[-1:] and any(target in _TRANSLATING for target in _after(tokens, "-j")):
            sources = list(_after(tokens, "-s"))
            if not sources or tokens[tokens.index("-s") - 1] != "!":
                yield IPv4Network(sources[0]) if sources else _ANY


def forwarded_by(lines: Sequence[str]) -> tuple[set[str], bool]:
    """Return the bridges from which everything is forwarded, and True if that is so unless a rule drops it."""
    bridges: set[str] = set()
    is_open = False
    for line in lines:
        tokens = line.split()
        if tokens in (["-P", "FORWARD", "ACCEPT"], ["-A", "FORWARD", "-j", "ACCEPT"]):
            is_open = True
        if tokens[:1] == ["-A"] and "ACCEPT" in _after(tokens, "-j") and "-m" not in tokens:
            bridges.update(bridge for bridge in _after(tokens, "-i") if tokens[tokens.index("-i") - 1] != "!")
    return bridges, is_open


def translated_by_nft(listing: str) -> Iterator[IPv4Network]:
    """Yield the sources whose connections are translated, of nft's own rules (JSON)."""
    for element in json.loads(listing)["nftables"]:
        rule = element.get("rule", {})
        expressions: list[dict[str, Any]] = [
            expression for expression in rule.get("expr", ()) if isinstance(expression, dict)
        ]
        if rule.get("family") == "ip6" or not any(map(_translates, expressions)):
            continue
        matches = [expression["match"] for expression in expressions if "match" in expression]
        sources = [match for match in matches if _field(match) == "saddr"]
        if any(match["left"]["payload"].get("protocol") == "ip6" for match in sources):
            continue
        if not sources:
            yield _ANY
        elif sources[0]["op"] == "==":
            yield from _networks(sources[0]["right"])


def _translates(expression: dict[str, Any]) -> bool:
    """Return True for a translation, be it an extension (xt) of iptables that nft only names."""
    extension = expression.get("xt")
    extension_name = extension.get("name") if isinstance(extension, dict) else ""
    return bool(expression.keys() & {"masquerade", "snat"}) or extension_name in _TRANSLATING


def _field(match: dict[str, Any]) -> str:
    operand = match["left"]
    return str(operand.get("payload", {}).get("field", "")) if isinstance(operand, dict) else ""


def _networks(right: Any) -> Iterator[IPv4Network]:
    if isinstance(right, str):
        yield IPv4Network(right)
    elif isinstance(right, dict) and "prefix" in right:
        yield IPv4Network((right["prefix"]["addr"], right["prefix"]["len"]))


def _after(tokens: Sequence[str], option: str) -> Iterator[str]:
    yield from (value for name, value in pairwise(tokens) if name == option)


def _is_legacy_loaded() -> bool:
    """Return True if the kernel has tables of the older iptables, which no generation number counts."""
    try:
        return bool(_LEGACY.read_text().strip())
    except OSError:
        return False


def _lines(*command: str) -> list[str]:
    return _run(command[0], "-w", "2", *command[1:]).splitlines()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise ValueError((done.stderr.strip() or "no message").splitlines()[0])
    return done.stdout
