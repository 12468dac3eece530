"""Admission of a Provider, and the addresses that the model gateway may connect to. Pure."""

import ipaddress
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from controller.kinds.provider import ProviderSpec
from controller.kinds.runtime.models import HOST
from controller.policy.addresses import is_public
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

_URL = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?(/[A-Za-z0-9._~/-]*)?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?\.?")
_PRIVATE_SUFFIXES = (".localhost", ".internal", ".local", ".home.arpa", ".localdomain", ".lan", ".intranet")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Parts of a provider's URL. `host` is in lower case, without brackets; `path` has no `/` at its end."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """The endpoint as the setting provider_hosts names it: host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def admit(spec: ProviderSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a provider."""
    reason = url_refused(spec.url, policy)
    refusals = [Refusal("spec.url", message) for message in (reason, _path_refused(spec)) if message]
    if message := _authority_refused(spec):
        refusals.append(Refusal("spec.certificateAuthority", message))
    return tuple(refusals)


def endpoint_of(url: str) -> Endpoint | None:
    """Return the parts of a URL; None if it is none that a provider may have."""
    match = _URL.fullmatch(url)
    if match is None:
        return None
    scheme, host, port, path = match.groups()
    number = int(port) if port else _DEFAULT_PORTS[scheme]
    if not 1 <= number <= 65535:
        return None
    return Endpoint(scheme, host.strip("[]").lower().removesuffix("."), number, (path or "").rstrip("/"))


def base_url(spec: ProviderSpec) -> str:
    """Return the URL before `/chat/completions` or `/messages`, without a `/` at its end."""
    url, endpoint = spec.url.rstrip("/"), endpoint_of(spec.url)
    path = endpoint.path if endpoint else ""
    if spec.type == "Anthropic":
        return url if path.endswith("/v1") else f"{url}/v1"
    return url if path else f"{url}/v1"


def url_refused(url: str, policy: Policy) -> str:
    """Return why the gateway may not connect to this URL; "" if it may. The addresses of a name are checked later."""
    endpoint = endpoint_of(url)
    if endpoint is None:
        return f"`{url[:200]}` is not a valid URL; write https://HOST[:PORT][/PATH]"
    if _is_gateway(endpoint, policy):
        return f"`{endpoint.authority}` is Paddock's own gateway; name the API behind it, or a ModelServer"
    if is_listed(endpoint, policy.provider_hosts):
        return ""
    listing = f"the operator can allow it (setting provider_hosts, `{endpoint.authority}`)"
    if endpoint.scheme == "http":
        return f"`{endpoint.authority}` is not encrypted, so its key could be read on the way; use https, or {listing}"
    if not is_public_host(endpoint.host):
        return f"`{endpoint.authority}` is no public address; use one, or {listing}"
    return ""


def is_listed(endpoint: Endpoint, provider_hosts: tuple[str, ...]) -> bool:
    """Return True if the operator allowed this host and port, whatever its address."""
    return endpoint.authority in {provider_host.lower() for provider_host in provider_hosts}


def key_refused(name: str, endpoint: Endpoint, hosts: tuple[str, ...] | None) -> str:
    """Return why a key of these hosts is not sent to this endpoint; "" if it is. None: it may be sent to any."""
    if hosts is None or endpoint.authority in hosts:
        return ""
    bound = f"is for {', '.join(hosts)} alone" if hosts else "is bound to no host"
    remedy = f"the operator of this host can change that (`paddock secret bind {name} --host HOST`)"
    return f"the secret `{name}` {bound}, so it is not sent to {endpoint.authority}; {remedy}"


def host_of(text: str) -> str | None:
    """Return HOST[:PORT] as host:port, with 443 for no port; None if it is not valid."""
    endpoint = endpoint_of(f"https://{text}")
    return endpoint.authority if endpoint is not None and not endpoint.path and not text.endswith("/") else None


def is_public_host(host: str) -> bool:
    """Return True if the host may be on the Internet: a public address, or a name of more than one label."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_name = _NAME.fullmatch(host) is not None and "." in host
        return is_name and not f".{host}".endswith(_PRIVATE_SUFFIXES)
    return is_public(host)


def _is_gateway(endpoint: Endpoint, policy: Policy) -> bool:
    if endpoint.host == HOST or endpoint.host.endswith(f".{HOST}"):
        return True
    if endpoint.port != policy.models_port or not policy.models_port:
        return False
    try:
        address = ipaddress.ip_address(endpoint.host)
    except ValueError:
        return f".{endpoint.host}".endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _path_refused(spec: ProviderSpec) -> str:
    endpoint = endpoint_of(spec.url)
    path = endpoint.path if endpoint else ""
    if any(segment in (".", "..") for segment in path.split("/")):
        return "the path must not contain `.` or `..`; write it out"
    for end in ("/chat/completions", "/completions", "/messages", "/embeddings", "/responses", "/models"):
        if path.endswith(end):
            return f"`{end}` is added by the gateway; write the URL without it"
    return ""


def _authority_refused(spec: ProviderSpec) -> str:
    pem = spec.certificate_authority
    if pem is None:
        return ""
    if "PRIVATE KEY-----" in pem:
        return "it contains a private key, which all readers of this object would get; leave the key out, and renew it"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError):  # it holds no certificate; it is not ASCII
        message = "it is not a certificate in PEM form"
        return f"{message}; write all of its file, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
    endpoint = endpoint_of(spec.url)
    if endpoint is not None and endpoint.scheme == "http":
        return "a provider at an http URL has no certificate; write https, or remove it"
    return ""


def hosts_refused(listed: tuple[str, ...]) -> Iterator[str]:
    """Yield why an entry of the setting provider_hosts is invalid."""
    for entry in listed:
        endpoint = endpoint_of(f"http://{entry}")
        if endpoint is None or endpoint.path or ":" not in entry.rpartition("]")[2]:
            yield f"`{entry[:200]}` is not a valid HOST:PORT; write it as 127.0.0.1:11434 or ollama.lan:443"
