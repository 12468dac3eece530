"""SSH connections to sandboxes, as the API knows them: who has come, and to which sandbox."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from controller.kinds.access.access import Caller
from controller.service import errors


@dataclass(frozen=True, slots=True)
class SshLogin:
    """An authenticated caller of one sandbox, of that uid. None: Paddock itself."""

    caller: Caller | None
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SshHost:
    """Identity of this daemon for SSH clients: its instance, its public key, the address of its port ("": none)."""

    instance: str
    host_key: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key of a caller, for the SSH port: its fingerprint, its type, and its comment."""

    fingerprint: str
    type: str
    comment: str


class SshFront(Protocol):
    """The SSH server. Its methods may block."""

    def host(self) -> SshHost:
        """Return who this is to SSH clients. Raises ServiceUnavailable."""
        ...

    def add_key(self, caller: Caller, text: str) -> SshKey:
        """Add a public key of the caller. Raises ServiceError."""
        ...

    def keys(self, caller: Caller) -> Sequence[SshKey]:
        """Return the caller's keys."""
        ...

    def remove_key(self, caller: Caller, fingerprint: str) -> None:
        """Remove a key of the caller, and end its connections. Raises NotFound."""
        ...

    def serve(self, descriptor: int, login: SshLogin, on_end: Callable[[], None]) -> Callable[[], None]:
        """Serve the connection, of which a copy is made. Return what ends it; `on_end` is called when it has ended.

        Raises ServiceUnavailable.
        """
        ...


class NoSsh:
    """The front of a daemon that keeps no host."""

    def add_key(self, _caller: Caller, _text: str) -> SshKey:
        """Raise NotFound."""
        raise errors.NotFound("SSH is not served by this daemon; ask the host that has the sandbox")

    def keys(self, _caller: Caller) -> Sequence[SshKey]:
        """Return none."""
        return ()

    def remove_key(self, _caller: Caller, _fingerprint: str) -> None:
        """Raise NotFound."""
        raise errors.NotFound("SSH is not served by this daemon; ask the host that has the sandbox")

    def host(self) -> SshHost:
        """Raise NotFound."""
        raise errors.NotFound("SSH is not served by this daemon; ask the host that has the sandbox")

    def serve(self, _descriptor: int, _login: SshLogin, _over: Callable[[], None]) -> Callable[[], None]:
        """Raise NotFound."""
        raise errors.NotFound("SSH is not served by this daemon; ask the host that has the sandbox")
