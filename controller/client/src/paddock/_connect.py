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
    located = locate(server, context=context)
    if token:
        located = replace(located, token=token)
    if ca_file:
        located = replace(located, ca_file=ca_file)
    return Chosen(located, namespace or configured_namespace(server, context) or DEFAULT_NAMESPACE)


def configured_namespace(server: str | None = None, context: str | None = None) -> str:
    """Return the namespace of a named context, else of the environment, else of the current context; else nothing."""
    if context is None and (configured := os.environ.get("PADDOCK_NAMESPACE")):
        return configured
    if server is None and (
        context or not any(os.environ.get(variable) for variable in ("PADDOCK_SERVER", "PADDOCK_SOCKET"))
    ):
        chosen = chosen_context(context)
        if chosen is not None and chosen.namespace:
            return chosen.namespace
    return os.environ.get("PADDOCK_NAMESPACE", "")
