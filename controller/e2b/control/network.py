"""E2B's network options as the spec's `network`: they may narrow what the template's level allows, never widen it."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.e2b.fields import Fields
from controller.policy.levels.levels import FULL_ISOLATION as STRICTEST
from controller.service.errors import BadRequest

_STRICTEST = STRICTEST.name
_ALL = ("0.0.0.0/0", "::/0")
_DIGITS = frozenset("0123456789.:/abcdef")


def network_of(request: Fields, level: str) -> Mapping[str, Any] | None:
    """Return the spec's `network`; None: that of the template, as it is. Raises BadRequest for what would widen it.

    `request` has `allow_internet_access` and `network`, or only the options of an update.
    """
    options = request.fields("network") if "network" in request else request
    allow, deny = options.texts("allowOut"), options.texts("denyOut")
    _refuse(options)
    denies_all = not _internet(request) or any(address in _ALL for address in deny)
    if allow and level == _STRICTEST:
        raise BadRequest(
            "network.allowOut: the template's level full-isolation has no network; use a template of level development"
            f" that allows {', '.join(allow[:5])}"
        )
    if any(address not in _ALL for address in deny):
        raise BadRequest("network.denyOut: single addresses can't be denied; deny 0.0.0.0/0, and allow host names")
    if not denies_all or level == _STRICTEST:
        return None
    return {"allowedHosts": list(_host_names(allow))}


def _internet(request: Fields) -> bool:
    name = "allow_internet_access"
    return request.flag(name, request.flag("allowInternetAccess", True))


def _refuse(options: Fields) -> None:
    """Raise BadRequest for options without a counterpart."""
    if options.flag("allowPublicTraffic", False):
        raise BadRequest(
            "network.allowPublicTraffic: ports are never open to anybody here; leave it out, and send the access token"
        )
    for name in ("rules", "egressProxy", "maskRequestHost"):
        if name in options:
            raise BadRequest(
                f"network.{name}: is not offered; credentials for hosts are `credentials:` of a Sandbox's spec"
            )


def _host_names(allow: Sequence[str]) -> Sequence[str]:
    for name in allow:
        if set(name) <= _DIGITS and any(letter.isdigit() for letter in name):
            raise BadRequest(f"network.allowOut: `{name[:60]}` is an address; name hosts, such as pypi.org")
    return [name.lower() for name in allow]
