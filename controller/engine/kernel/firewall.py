"""The guard: a static nft table of our own, loaded before Docker (deploy/paddock-guard.nft), and only read here.

It has to stand in the network namespace of the engine, which is the daemon's own on every host we support.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

TABLE = "paddock"
LOAD = "load it: `nft -c -f deploy/paddock-guard.nft && nft -f deploy/paddock-guard.nft` (deploy/paddock-guard.service)"
# What each rule is for, as its comment in the file says; all have to be there.
RULES = frozenset(
    {
        "paddock-in",
        "paddock-in-answers",
        "paddock-ipv6",
        "paddock-sealed",
        "paddock-across",
        "paddock-into",
        "paddock-resolvers",
        "paddock-special",
        "paddock-private",
    }
)
_HOOKS = frozenset({"input", "forward"})
_TIMEOUT_SECONDS = 10.0


class NftFirewall:
    """ports.Firewall over the `nft` command. `command` is what it is called by."""

    def __init__(self, command: tuple[str, ...] = ("nft",)) -> None:
        self._command = command

    def unguarded(self) -> str:
        """Why networked sandboxes are not guarded, in words; "" when they are. Never raises."""
        try:
            done = subprocess.run(
                [*self._command, "-j", "list", "table", "inet", TABLE],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            return "nft is not installed; `apt-get install nftables`, then " + LOAD
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"nft can't be run: {error}"
        if done.returncode:
            words = (done.stderr.strip() or "no words").splitlines()[0]
            return f"the nft table `inet {TABLE}` can't be read ({words}); {LOAD}"
        return missing(done.stdout)


def missing(listing: str) -> str:
    """What of the guard is not in this table (nft's JSON), in words; "" when all is."""
    try:
        parts: list[dict[str, Any]] = json.loads(listing)["nftables"]
    except (ValueError, KeyError, TypeError):
        return "nft's answer can't be read; it takes nft 0.9.3 or newer"
    hooks = {chain.get("hook") for chain in _of(parts, "chain")}
    found = {rule.get("comment") for rule in _of(parts, "rule")}
    lacking = sorted(_HOOKS - hooks) + sorted(RULES - found)
    return f"the nft table `inet {TABLE}` lacks {', '.join(lacking)}; {LOAD}" if lacking else ""


def _of(parts: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    yield from (each[kind] for each in parts if kind in each)
