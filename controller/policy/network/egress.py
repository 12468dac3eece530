"""Egress of a sealed network: the allowed names, and the proxy container that enforces them. Pure.

    sandbox -- pdx-<id> (sealed /28) -- egress-<id> (squid, and a DNS that knows no name) -- pdp-uplink -- Internet

The sandbox has a route to its own bridge alone. Only the proxy is on it, too. The proxy's configuration is part of
its container's: a changed list of names recreates that container, which cuts open tunnels.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from controller.kinds.common.labels import egress_name, sealed_name
from controller.kinds.runtime.container import ContainerConfig, Limits, Tmpfs, stable_hash
from controller.kinds.runtime.credential import HostCredential
from controller.kinds.runtime.mount import Mount, Slot
from controller.kinds.runtime.network import NetworkConfig
from controller.policy.addresses import SPECIAL_RANGES
from controller.policy.levels.seccomp import STANDARD
from controller.policy.network import peers

IMAGE = "paddock/egress:1"
UPLINK = "pdp-uplink"
PORT = 3128
LIMITS = Limits(cpu_millicores=500, memory_bytes=64 << 20, pids=32)
# In a config that is rendered before its network has a subnet; `plugged` puts the address there.
PENDING = "egress"
_PROXY = f"http://{PENDING}:{PORT}"
_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_CERTIFICATE, _HEADERS = "/etc/squid/credentials.pem", "/etc/squid/credentials.conf"
_ROOTS = "/etc/squid/authorities.crt"
_NO_PROXY = f"localhost,127.0.0.1,::1,.{peers.DOMAIN}"
_USER = "13:13"  # Debian's `proxy`
# No forwarding, and no packets with a source address of the other bridge: if the host masqueraded traffic of the
# sealed one, the answers would leave by the uplink.
_SYSCTLS = (
    ("net.ipv4.conf.all.rp_filter", "1"),
    ("net.ipv4.ip_forward", "0"),
    ("net.ipv4.ip_unprivileged_port_start", "53"),
)
_SEALED_PREFIX, _UPLINK_PREFIX = 28, 22
# Of a name that this host can't resolve, the upstream proxy knows the address: squid soon stops asking.
_UPSTREAM = """\
cache_peer {host} parent {port} 0 no-query no-digest no-netdb-exchange name=upstream
cache_peer_access upstream allow all
never_direct allow all
dns_timeout 2 seconds
"""
# squid takes the tunnel's own name where there is none inside; here such a one is terminated. It says `-` for none.
_HAS_SNI = "while read -r name rest; do case $name in *.*) echo OK;; *) echo ERR;; esac; done"
_CONF = """\
http_port {port} ssl-bump {certificate} generate-host-certificates=off
acl tls port 443
acl web port 80 443
acl CONNECT method CONNECT
acl special dst {special}
acl special dst ::/0
{names}
{upstream}http_access deny manager
{guarded}http_access deny CONNECT !tls
http_access deny !web
http_access deny !listed
http_access deny special
http_access allow listed
http_access deny all
acl first at_step SslBump1
acl second at_step SslBump2
external_acl_type sni ttl=3600 children-max=1 children-startup=1 %ssl::>sni /bin/sh -c "{has_sni}"
acl named external sni
{decrypted}ssl_bump peek first
ssl_bump splice second listed_sni named
ssl_bump terminate all
on_unsupported_protocol respond all
unlinkd_program /usr/bin/true
forwarded_for delete
via off
cache deny all
cache_mem 0 MB
memory_pools off
max_filedescriptors 1024
sslproxy_session_cache_size 0
pinger_enable off
pid_filename none
coredump_dir /run
visible_hostname egress
httpd_suppress_version_string on
shutdown_lifetime 0 seconds
mime_table /dev/null
icon_directory /run
error_directory /usr/share/squid/errors/templates
logformat egress %ts.%03tu %>a %Ss/%03>Hs %rm %>rd:%>rP %ssl::>sni %<a %<st
access_log stdio:/dev/stdout egress
cache_log /dev/stderr
cache_store_log none"""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The egress resources of a sealed sandbox besides its own container. `hosts` are the names it may reach."""

    network: str
    hosts: tuple[str, ...]
    egress: ContainerConfig
    credentials: tuple[HostCredential, ...] = ()

    def bridge(self, subnet: str) -> NetworkConfig:
        """Return the bridge on that subnet. Its lower half is the proxy's: no sandbox gets that address."""
        upper = list(IPv4Network(subnet).subnets(1))[1]
        return NetworkConfig(self.network, subnet, handed_out=str(upper), sealed=True)


def sealed(
    uid: str, hosts: Collection[str], credentials: tuple[HostCredential, ...] = (), upstream: str = ""
) -> Sealed:
    """Return the sealed network of that object, with egress to these names and no others.

    `credentials` are added to requests to their hosts. `upstream` (host:port) is the proxy that alone reaches the
    Internet; "": the host does.
    """
    names = tuple(sorted(set(hosts)))
    egress = ContainerConfig(
        image=IMAGE,
        name=egress_name(uid),
        limits=LIMITS,
        hostname="egress",
        user=_USER,
        env=(("PADDOCK_SQUID_CONF", squid_conf(names, credentials, upstream)),),
        tmpfs=(Tmpfs("/run", 1 << 20), Tmpfs("/tmp", 1 << 20)),  # noqa: S108 - inside the container
        network_mode=UPLINK,
        dns=(),
        sysctls=_SYSCTLS,
        oom_score_adjust=400,
        seccomp=STANDARD,
        slots=tuple(Slot(file.path, file=True) for file in _files(credentials)),
        mounts=_files(credentials),
    )
    return Sealed(sealed_name(uid), names, egress, credentials)


def _files(credentials: tuple[HostCredential, ...]) -> tuple[Mount, ...]:
    """Return the proxy's files. Only they hold secrets: its configuration, which anyone may inspect, has none."""
    if not credentials:
        return ()
    return (
        Mount(_ROOTS, "authorities", "this host", read_only=True),
        Mount(_CERTIFICATE, "certificate", read_only=True, credentials=credentials),
        Mount(_HEADERS, "headers", read_only=True, credentials=credentials),
    )


def behind(config: ContainerConfig, way: Sealed, *, proxied: bool = True) -> ContainerConfig:
    """Return the sandbox's container config on its sealed network: proxy settings, and a DNS without any names.

    Without `proxied` its programs are told of no proxy, and call everything themselves.
    """
    variables = dict(config.env)
    settings = dict.fromkeys(_PROXY_NAMES, _PROXY) | {"NO_PROXY": _NO_PROXY, "no_proxy": _NO_PROXY}
    return replace(
        config,
        network_mode=way.network,
        dns=(PENDING,),
        dns_options=("timeout:1", "attempts:1"),
        env=tuple(sorted({**(settings if proxied else {}), **variables}.items())),
    )


def with_proxy_address(config: ContainerConfig, subnet: str) -> ContainerConfig:
    """Return the config with the proxy's address filled in."""
    address = proxy_address(subnet)
    url = _PROXY.replace(PENDING, address)
    return replace(
        config,
        dns=tuple(address if server == PENDING else server for server in config.dns),
        env=tuple((name, url if name in _PROXY_NAMES and value == _PROXY else value) for name, value in config.env),
    )


def proxy_address(subnet: str) -> str:
    """Return the proxy's address on a sealed network: the first after the gateway that the engine reserves."""
    return str(IPv4Network(subnet)[2])


def uplink(range_: str) -> NetworkConfig:
    """Return the bridge of all egress containers. `range_` is the pool of all networks."""
    return NetworkConfig(UPLINK, str(next(IPv4Network(range_).subnets(new_prefix=_UPLINK_PREFIX))), sealed=False)


def subnet_for(uid: str, range_: str, used_subnets: Collection[str], prefix: int = _SEALED_PREFIX) -> str:
    """Return a free /28 (or another prefix) of the range, found by the uid's hash; "" if none is left.

    `used_subnets` has the /28s in use; see `parts`.
    """
    network, first = IPv4Network(range_), 1 << (prefix - _UPLINK_PREFIX)
    size = 1 << (32 - prefix)
    count = network.num_addresses // size - first
    if count <= 0:
        return ""
    head = re.sub(r"[^0-9a-f]", "", uid)[:8]
    start = int(head or "0", 16) % count
    for step in range(count):
        at = network.network_address + (first + (start + step) % count) * size
        subnet = f"{at}/{prefix}"
        if not any(block in used_subnets for block in parts(subnet)):
            return subnet
    return ""


def parts(subnet: str) -> Iterator[str]:
    """Return the /28s of a subnet; the subnet itself if it is no larger."""
    if int(subnet.partition("/")[2]) >= _SEALED_PREFIX:
        yield subnet
        return
    network = IPv4Network(subnet)
    yield from (f"{network.network_address + at}/{_SEALED_PREFIX}" for at in range(0, network.num_addresses, 16))


def squid_conf(hosts: Collection[str], credentials: Sequence[HostCredential] = (), upstream: str = "") -> str:
    """Return squid's complete configuration. Names are checked first, so that an unlisted one is never resolved."""
    host, _, port = upstream.rpartition(":")
    own_certificate = "tls-cert=/etc/squid/certificate.pem tls-key=/etc/squid/key.pem"
    return _CONF.format(
        port=PORT,
        has_sni=_HAS_SNI,
        special=" ".join(SPECIAL_RANGES),
        names="\n".join(_acls(hosts)),
        upstream=_UPSTREAM.format(host=host, port=port) if upstream else "",
        certificate=f"tls-cert={_CERTIFICATE}" if credentials else own_certificate,
        guarded="".join(f"{rule}\n" for rule in _credential_rules(credentials)),
        decrypted="ssl_bump bump first decrypted_host\n" if credentials else "",
    )


def _credential_rules(credentials: Sequence[HostCredential]) -> Iterator[str]:
    """Yield the rules for hosts with credentials.

    A tunnel to such a host is decrypted, and each request in it is sent to the host that it names, over TLS and after a
    check of that host's certificate. The comment makes other credentials another configuration.
    """
    if not credentials:
        return
    yield f"# credentials {stable_hash(credentials)}"
    yield "acl secure proto HTTPS"
    yield "acl trace method TRACE"
    for host, acl in dict.fromkeys((credential.host, credential.acl) for credential in credentials):
        yield f"acl {acl} dstdom_regex -n -i {_pattern(host)}"
        yield f"acl decrypted_host dstdom_regex -n -i {_pattern(host)}"
    for credential in credentials:
        yield f"request_header_access {credential.header} deny {credential.acl}"
    yield "http_access deny trace decrypted_host"
    yield "http_access deny decrypted_host !CONNECT !secure"
    yield "http_access deny secure !decrypted_host"
    yield f"include {_HEADERS}"
    yield f"tls_outgoing_options cafile={_ROOTS}"


def _acls(hosts: Collection[str]) -> Iterator[str]:
    """Yield ACLs by pattern on whole names: squid's own domain lists match subdomains too. None: matches nothing."""
    patterns = [_pattern(host) for host in sorted(set(hosts))] or ["^$"]
    for pattern in patterns:
        yield f"acl listed dstdom_regex -n -i {pattern}"
    for pattern in patterns:
        yield f"acl listed_sni ssl::server_name_regex -i {pattern}"


def _pattern(host: str) -> str:
    """Return the regular expression of a name. `*.` stands for one or more labels."""
    wild = host.startswith("*.")
    name = host.removeprefix("*.").replace(".", r"\.")
    return rf"^([a-z0-9_-]+\.)+{name}$" if wild else f"^{name}$"
