"""Proxies in front of the preview listener, whose word about their clients holds (setting `trusted_proxies`)."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class PreviewClient:
    """The client of a request: its address ("": unknown), and the scheme that it used ("": unknown)."""

    address: str
    scheme: str


@dataclass(frozen=True, slots=True)
class Proxies:
    """The trusted proxies, by their networks. Of others X-Forwarded-For and X-Forwarded-Proto mean nothing."""

    networks: Sequence[Network] = ()

    def client(self, scope: Scope) -> PreviewClient:
        """Return the client: the last address of X-Forwarded-For that is no trusted proxy's."""
        peer = str((scope.get("client") or ("",))[0])
        if not self._trusts(peer):
            return PreviewClient(peer, "")
        headers = Headers(scope=scope)
        hops = [hop.strip() for value in headers.getlist("x-forwarded-for") for hop in value.split(",")]
        address = next((hop for hop in reversed(hops) if not self._trusts(hop)), peer)
        protos = headers.getlist("x-forwarded-proto")
        scheme = protos[-1].rpartition(",")[2].strip().lower() if protos else ""
        return PreviewClient(address if _address_of(address) else peer, scheme)

    def _trusts(self, text: str) -> bool:
        address = _address_of(text)
        return address is not None and any(address in network for network in self.networks)


def _address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address as proxies write it, maybe with a zone; None if it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
