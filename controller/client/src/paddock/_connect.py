"""Daemon, namespace and credentials of a client."""

import os
from dataclasses import dataclass, replace

from paddock._client.contexts import chosen_context
from paddock._client.server import Server, locate

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A daemon, and the namespace to work in."""

    server: Server
    namespace: str


def chosen_server(
    server: str | None, *, context: str | None, namespace: str | None, token: str, ca_file: str
) -> Chosen:
    """Return what the arguments, the environment and the contexts say, in this order."""
    found = locate(server, context=context)
    if token:
        found = replace(found, token=token)
    if ca_file:
        found = replace(found, ca_file=ca_file)
    return Chosen(found, namespace or configured_namespace(server, context) or DEFAULT_NAMESPACE)


def configured_namespace(server: str | None = None, context: str | None = None) -> str:
    """Return the namespace of a named context, else of the environment, else of the current context; else nothing."""
    if context is None and (given := os.environ.get("PADDOCK_NAMESPACE")):
        return given
    if server is None and (context or not any(os.environ.get(each) for each in ("PADDOCK_SERVER", "PADDOCK_SOCKET"))):
        found = chosen_context(context)
        if found is not None and found.namespace:
            return found.namespace
    return os.environ.get("PADDOCK_NAMESPACE", "")
