"""Files of credentials for hosts: the authority of this Paddock, its certificates, and the headers of the egress proxy.

The authority is created once, in the daemon's state folder; its key never leaves that. A proxy gets a certificate for
the hosts of its own sandbox alone, which only that sandbox and the others with credentials here trust.
"""

import base64
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from controller.engine.mounts.host_authorities import host_roots
from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.runtime.credential import HostCredential, credentials_folder
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.secret import NoSecret, SecretNotFound, SecretStamp

if TYPE_CHECKING:
    from controller.engine.mounts.authority import Authority

_MOST_BYTES = 4096  # of a header
# A connection that is decrypted carries requests for its host, and no tunnel to another one.
_RULES = "acl inside connections_encrypted\nhttp_access deny CONNECT inside\n"


class CredentialFiles:
    """Contents of the mounts of credentials.

    `authority` is called when one is first needed: it loads a cryptography library of 8 MiB.
    """

    def __init__(self, authority: Callable[[], "Authority"], secrets: SecretFolder) -> None:
        self._make, self._secrets = authority, secrets
        self._made: Authority | None = None
        self._lock = Lock()

    def _authority(self) -> "Authority":
        with self._lock:  # two of them could create its key twice
            self._made = self._made or self._make()
            return self._made

    def content(self, mount: Mount, namespace: str) -> bytes:
        """Return the content of a file. Raises NoSecret, OSError."""
        if mount.kind == "headers":
            return (_RULES + "".join(self._line(each, namespace) for each in mount.credentials)).encode()
        if mount.kind == "certificate":
            return self._authority().issue(sorted({each.host for each in mount.credentials}))
        own = b"" if mount.source == "this host" else self._authority().certificate()
        return own + host_roots()

    def stamps(self, mount: Mount, namespace: str) -> tuple[SecretStamp, ...]:
        """Return the present states of the secrets in a file. Never raises."""
        if mount.kind != "headers":
            return ()
        names = {(credentials_folder(namespace, each.host), each.secret) for each in mount.credentials}
        return tuple(self._secrets.stamp(*each) for each in sorted(names))

    def is_current(self, known: SecretStamp) -> bool:
        """Return True if that secret is as it was then. Never raises."""
        return self._secrets.stamp(known.folder, known.name) == known

    def _line(self, asked: HostCredential, namespace: str) -> str:
        """Return the line of squid's configuration that adds a header to requests to that host."""
        value = self._value(asked, namespace)
        if asked.scheme == "Basic":
            value = base64.b64encode(f"{asked.user}:{value}".encode()).decode()
        text = value if asked.scheme == "Raw" else f"{asked.scheme} {value}"
        for special in ("\\", '"'):
            text = text.replace(special, f"\\{special}")
        text = text.replace("%", "%%")
        return f'request_header_add {asked.header} "{text}" {asked.acl}\n'

    def _value(self, asked: HostCredential, namespace: str) -> str:
        name, host = asked.secret, asked.host
        try:
            found = self._secrets.read(credentials_folder(namespace, host), name)
        except SecretNotFound as error:
            words = f"there is no secret `{name}` for {host} in namespace `{namespace}`"
            command = f"paddock secret set {name} --for {host} -n {namespace}"
            raise SecretNotFound(f"{words}; set it on the host: {command}") from error
        text = found.decode(errors="replace").strip()
        if not text or not text.isascii() or not text.isprintable() or len(text) > _MOST_BYTES:
            words = f"it is empty, longer than {_MOST_BYTES} bytes, or has other than printable ASCII characters"
            raise NoSecret(f"the secret `{name}` for {host} is no value of a header: {words}; set it again")
        return text
