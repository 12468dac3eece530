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
        self._cached_authority: Authority | None = None
        self._lock = Lock()

    def _authority(self) -> "Authority":
        with self._lock:  # two of them could create its key twice
            self._cached_authority = self._cached_authority or self._make()
            return self._cached_authority

    def content(self, mount: Mount, namespace: str) -> bytes:
        """Return the content of a file. Raises NoSecret, OSError."""
        if mount.kind == "headers":
            return (_RULES + "".join(self._line(credential, namespace) for credential in mount.credentials)).encode()
        if mount.kind == "certificate":
            return self._authority().issue(sorted({credential.host for credential in mount.credentials}))
        own_certificate = b"" if mount.source == "this host" else self._authority().certificate()
        return own_certificate + host_roots()

    def stamps(self, mount: Mount, namespace: str) -> tuple[SecretStamp, ...]:
        """Return the present states of the secrets in a file. Never raises."""
        if mount.kind != "headers":
            return ()
        names = {
            (credentials_folder(namespace, credential.host), credential.secret) for credential in mount.credentials
        }
        return tuple(self._secrets.stamp(*secret_key) for secret_key in sorted(names))

    def is_current(self, stamp: SecretStamp) -> bool:
        """Return True if that secret is as it was then. Never raises."""
        return self._secrets.stamp(stamp.folder, stamp.name) == stamp

    def _line(self, credential: HostCredential, namespace: str) -> str:
        """Return the line of squid's configuration that adds a header to requests to that host."""
        value = self._value(credential, namespace)
        if credential.scheme == "Basic":
            value = base64.b64encode(f"{credential.user}:{value}".encode()).decode()
        text = value if credential.scheme == "Raw" else f"{credential.scheme} {value}"
        for special in ("\\", '"'):
            text = text.replace(special, f"\\{special}")
        text = text.replace("%", "%%")
        return f'request_header_add {credential.header} "{text}" {credential.acl}\n'

    def _value(self, credential: HostCredential, namespace: str) -> str:
        name, host = credential.secret, credential.host
        try:
            content = self._secrets.read(credentials_folder(namespace, host), name)
        except SecretNotFound as error:
            message = f"there is no secret `{name}` for {host} in namespace `{namespace}`"
            command = f"paddock secret set {name} --for {host} -n {namespace}"
            raise SecretNotFound(f"{message}; set it on the host: {command}") from error
        text = content.decode(errors="replace").strip()
        if not text or not text.isascii() or not text.isprintable() or len(text) > _MOST_BYTES:
            fault = f"it is empty, longer than {_MOST_BYTES} bytes, or has other than printable ASCII characters"
            raise NoSecret(f"the secret `{name}` for {host} is no value of a header: {fault}; set it again")
        return text
