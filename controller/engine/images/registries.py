"""Registries that the engine is sent to: resolved here before a pull, so that no name leads into the host's networks.

The engine resolves the name again, and follows redirects of the registry. So nobody but the operator is told what an
unlisted registry answered.
"""

import socket
from collections.abc import Callable, Sequence

from controller.engine.docker.client import Client
from controller.policy.images import ImageRules, address_refused, is_vouched_for, registry_of, registry_server

Resolve = Callable[[str, int], Sequence[str]]


class RegistryRefused(Exception):
    """The engine is not sent to this registry; the message, for the operator, says why."""


def resolve_addresses(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name. Raises OSError."""
    return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


class Registries:
    """Registries as the operator's rules allow them."""

    def __init__(self, client: Client, rules: ImageRules, resolve: Resolve = resolve_addresses) -> None:
        self._client, self._rules, self._resolve = client, rules, resolve

    def check(self, image: str) -> None:
        """Resolve the registry of an image that is to be pulled. Raises RegistryRefused; Fault."""
        if is_vouched_for(image, self._rules):
            return
        registry = registry_of(image)
        try:
            addresses = self._resolve(*registry_server(registry))
        except (OSError, UnicodeError) as error:
            if self._has_proxy():  # it resolves names, and is the operator's
                return
            raise RegistryRefused(f"the name of the registry `{registry}` does not resolve here") from error
        if refusal := address_refused(registry, addresses):
            raise RegistryRefused(refusal)

    def message(self, image: str, reason: str) -> str:
        """Return why a pull failed, for everybody: of a registry that anybody may name, always the same."""
        if is_vouched_for(image, self._rules):
            return reason
        return (
            f"no image came from the registry `{registry_of(image)}`: it must have it, give it to this host, and be at "
            "a public address unless the operator lists it (setting `local_registries`); the operator's log says more"
        )

    def _has_proxy(self) -> bool:
        facts = self._client.call("info", lambda api: api.info())
        return bool(facts.get("HttpsProxy") or facts.get("HttpProxy"))
