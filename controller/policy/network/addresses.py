"""Addresses of the Internet, told from all others. Pure."""

import ipaddress

# Addresses outside the Internet: refused after a listed name was resolved, and by the firewall.
SPECIAL_RANGES = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
_SPECIAL = tuple(map(ipaddress.IPv4Network, SPECIAL_RANGES))
_NAT64, _LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48")


def is_public(address: str) -> bool:
    """Return True if this address is on the Internet, and embeds none that is not."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found in _LOCAL_NAT64:
            return False
    elif any(found in each for each in _SPECIAL):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)
