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
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # An IPv6 address may be a way to an IPv4 one: that one decides.
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip in _LOCAL_NAT64:
            return False
    elif any(ip in network for network in _SPECIAL):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)
