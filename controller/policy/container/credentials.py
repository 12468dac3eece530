"""Credentials of a sandbox for hosts that it may reach through its egress proxy. Pure.

The proxy decrypts TLS for these hosts alone, with a certificate of this Paddock's own authority, and adds the header.
The sandbox gets the authority's certificate, and variables that name it; it never gets the secret.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.credential import HostCredential
from controller.kinds.runtime.mount import Mount, Slot
from controller.kinds.sandbox import Credential, SandboxSpec
from controller.policy.levels.allowed_hosts import reachable
from controller.policy.levels.levels import Level
from controller.policy.refusal import Refusal

AUTHORITIES = "/etc/paddock/ca.crt"
HOST_AUTHORITIES = "/etc/paddock-host-ca.crt"
_AT = "spec.credentials"
_AUTHORIZATION = "authorization"
# Headers that say how a request is transported: another value would break it, or change where it goes.
_RESERVED = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
# What OpenSSL and Python's ssl, requests, curl, git, pip, Node.js, npm, cargo, the AWS tools and Deno read.
_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
)
# Bundles of distributions: what names one of them wants the public authorities, which the host's file has, too.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def of(spec: SandboxSpec) -> tuple[HostCredential, ...]:
    """Return the credentials of a sandbox, by host and header."""
    return tuple(
        sorted(
            (_of(credential) for credential in spec.credentials),
            key=lambda credential: (credential.host, credential.header),
        )
    )


def _of(credential: Credential) -> HostCredential:
    scheme = credential.scheme or ("Bearer" if credential.header.lower() == _AUTHORIZATION else "Raw")
    return HostCredential(credential.host, credential.secret_ref.name, credential.header, scheme, credential.user or "")


def refusals(spec: SandboxSpec, level: Level | None) -> Iterator[Refusal]:
    """Yield every reason why this sandbox can't have its credentials at that level."""
    if not spec.credentials or level is None:
        return
    if level.network != "sealed":
        message = f"level {level.name} has no proxy that could add them; remove them, or use securityLevel"
        yield Refusal(_AT, f"{message}: development or build")
        return
    hosts, headers = reachable(spec.network, level), set[tuple[str, str]]()
    for index, credential in enumerate(spec.credentials):
        at, key = f"{_AT}[{index}]", (credential.host, credential.header.lower())
        yield from _credential_refusals(credential, at, hosts)
        if key in headers:
            yield Refusal(at, f"the header {credential.header} for `{credential.host}` is set twice; keep one")
        headers.add(key)


def _credential_refusals(credential: Credential, at: str, hosts: Collection[str]) -> Iterator[Refusal]:
    if credential.host.startswith("*."):
        yield Refusal(f"{at}.host", f"`{credential.host}` stands for many hosts; write each host that gets the secret")
    elif credential.host not in hosts:
        yield Refusal(f"{at}.host", f"the sandbox does not reach `{credential.host}`; add it to network.allowedHosts")
    if credential.header.lower() in _RESERVED or credential.header.lower().startswith("proxy-"):
        yield Refusal(
            f"{at}.header", f"`{credential.header}` belongs to the transport of requests; name another header"
        )
    if (credential.scheme == "Basic") != (credential.user is not None):
        yield Refusal(f"{at}.user", "the scheme Basic needs `user:`, and no other has one")


def slots(spec: SandboxSpec) -> tuple[Slot, ...]:
    """Return the slot of the authorities' certificates in the sandbox."""
    return (Slot(AUTHORITIES, file=True),) if spec.credentials else ()


def mounts(spec: SandboxSpec) -> tuple[Mount, ...]:
    """Return the mount of the authorities' certificates in the sandbox."""
    return (Mount(AUTHORITIES, "authorities", "this host and Paddock", read_only=True),) if spec.credentials else ()


def trusting(config: ContainerConfig, spec: SandboxSpec) -> ContainerConfig:
    """Return the config with the variables that name the certificates; those of the spec itself stay."""
    if not spec.credentials:
        return config
    variables = dict.fromkeys(_VARIABLES, AUTHORITIES) | dict(config.env)
    return replace(config, env=tuple(sorted(variables.items())))


def trusts_host(config: ContainerConfig) -> bool:
    """Return True if a container gets the authorities of its host: it has a network, and no file of them yet."""
    return config.network_mode != "none" and AUTHORITIES not in dict(config.env).values()


def trusting_host(config: ContainerConfig, image_env: Mapping[str, str]) -> ContainerConfig:
    """Return the config with variables that name the host's authorities; other values of spec and image stay."""
    own_names = {name for name, value in image_env.items() if value not in ("", *_BUNDLES)}
    variables = {name: HOST_AUTHORITIES for name in _VARIABLES if name not in own_names} | dict(config.env)
    return replace(config, env=tuple(sorted(variables.items())))
