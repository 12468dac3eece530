"""Credentials of hosts: what the egress proxy adds to a sandbox's requests, by name; no value is here."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from controller.kinds.runtime.secret import providers_folder

Scheme = Literal["Bearer", "Basic", "Raw"]


@dataclass(frozen=True, slots=True)
class HostCredential:
    """A secret that is sent as `header` of each request to `host`. `user` is that of the scheme Basic."""

    host: str
    secret: str
    header: str
    scheme: Scheme
    user: str = ""

    @property
    def acl(self) -> str:
        """Name of the proxy's ACL for requests to its host."""
        return "to_" + hashlib.sha256(self.host.encode()).hexdigest()[:16]


def credentials_folder(namespace: str, host: str) -> str:
    """Return the folder of a namespace's secrets for one host. No sandbox can name it, since it is no namespace."""
    return f"{namespace}.for.{host}"


def use_of(folder: str) -> tuple[str, str]:
    """Return the namespace and the use of a folder's secrets: providers, sandboxes, or a host's name."""
    namespace, host = folder_parts(folder)
    if host:
        return namespace, host
    end = providers_folder("")
    return folder.removesuffix(end), "providers" if folder.endswith(end) else "sandboxes"


def folder_parts(folder: str) -> tuple[str, str]:
    """Return the namespace and the host of such a folder; the host is "" for any other."""
    namespace, _, host = folder.partition(".for.")
    return namespace, host
