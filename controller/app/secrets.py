"""The operator's secrets on this host: for `paddock secret`, which needs no daemon, and for the daemon's API."""

import errno
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from controller.app.errors import CannotStart
from controller.engine.mounts.secrets import SecretFolder
from controller.gateway.bindings import Bindings, bindings_file
from controller.kinds.envelope import namespace_fault
from controller.kinds.runtime.credential import credentials_folder, use_of
from controller.kinds.runtime.secret import ListedSecret, NoSecret, providers_folder
from controller.policy.provider import host_of
from controller.settings import Settings

_Result = TypeVar("_Result")
_HOST = re.compile(r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


class HostSecrets:
    """ports.SecretFiles: the secrets of this host, for the daemon's API."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def all(self) -> Sequence[ListedSecret]:
        try:
            return list_secrets(self._settings, None)
        except CannotStart as error:
            raise NoSecret(str(error)) from error

    def write(self, namespace: str, name: str, value: bytes, use: str, hosts: Sequence[str]) -> bool:
        try:
            return set_secret(self._settings, namespace, name, value, use, tuple(hosts))
        except CannotStart as error:
            raise NoSecret(str(error)) from error


def set_secret(settings: Settings, namespace: str, name: str, value: bytes, use: str, hosts: tuple[str, ...]) -> bool:
    """Write a secret; return True if it is new. Raises CannotStart.

    A provider's key has hosts; where none are given, a changed one keeps those it has.
    """
    folder, secrets = _folder(namespace, use), SecretFolder(settings.secrets_dir)
    if use != "providers":
        if hosts:
            raise CannotStart(f"secret {name}: --host is for keys of providers; leave it out for --for {use}")
        return _save(settings, lambda: secrets.write(folder, name, value))

    def write() -> bool:
        bound = _valid(hosts) or secrets.hosts(folder, name) or _earlier(settings, namespace, name)
        if not bound:
            remedy = "a provider's key is sent to hosts that are named with it alone"
            raise CannotStart(f"secret {name}: {remedy}; add --host with that of the provider's URL")
        secrets.bind(folder, name, ())  # neither key is ever sent to a host of the other one
        is_new = secrets.write(folder, name, value)
        secrets.bind(folder, name, bound)
        return is_new

    return _save(settings, write)


def bind_secret(settings: Settings, namespace: str, name: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Name the hosts of a provider's key in place of those before, and return them. Raises CannotStart."""
    folder = _folder(namespace, "providers")
    secrets = SecretFolder(settings.secrets_dir)
    bound = _valid(hosts)

    def write() -> tuple[str, ...]:
        secrets.read(folder, name)
        secrets.bind(folder, name, bound)
        return bound

    return _save(settings, write)


def delete_secret(settings: Settings, namespace: str, name: str, use: str) -> None:
    """Delete a secret. Raises CannotStart."""
    try:
        SecretFolder(settings.secrets_dir).remove(_folder(namespace, use), name)
    except (NoSecret, OSError) as error:
        raise CannotStart(_message(error, settings)) from error


def uses_of_secret(settings: Settings, namespace: str, name: str) -> list[str]:
    """Return what the secrets of that name are for. Raises CannotStart."""
    return [listing.use for listing in list_secrets(settings, namespace) if listing.name == name]


def list_secrets(settings: Settings, namespace: str | None) -> list[ListedSecret]:
    """Return the secrets of a namespace (None: of all), without their values. Raises CannotStart."""
    folder = SecretFolder(settings.secrets_dir)
    try:
        listings = [
            _listed(settings, folder, space, *name) for space in folder.namespaces() for name in folder.names(space)
        ]
    except (NoSecret, OSError) as error:
        raise CannotStart(_message(error, settings)) from error
    return [listing for listing in listings if namespace in (None, listing.namespace)]


def _listed(settings: Settings, secrets: SecretFolder, folder: str, name: str, changed_at: float) -> ListedSecret:
    namespace, use = use_of(folder)
    hosts = secrets.hosts(folder, name) if use == "providers" else ()
    return ListedSecret(
        namespace, use, name, changed_at, _earlier(settings, namespace, name) if hosts is None else hosts
    )


def _earlier(settings: Settings, namespace: str, name: str) -> tuple[str, ...]:
    """Return the hosts of a key that was set before keys had hosts."""
    return Bindings(bindings_file(settings.state_dir)).hosts(namespace, name)


def _valid(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return hosts as host:port. Raises CannotStart."""
    bound = [host_of(host) for host in hosts]
    if wrong := [text for text, host in zip(hosts, bound, strict=True) if host is None]:
        raise CannotStart(f"--host {', '.join(wrong)}: not a valid HOST[:PORT]; write it as api.example.org")
    return tuple(dict.fromkeys(host for host in bound if host is not None))


def _save(settings: Settings, write: Callable[[], _Result]) -> _Result:
    try:
        return write()
    except (NoSecret, OSError) as error:
        raise CannotStart(_message(error, settings)) from error


def _folder(namespace: str, use: str) -> str:
    if why := namespace_fault(namespace):  # with a `.` it would be the folder of another use
        raise CannotStart(why)
    if use in ("providers", "sandboxes"):
        return providers_folder(namespace) if use == "providers" else namespace
    if not _HOST.fullmatch(use):
        remedy = "it is none of `providers` and `sandboxes`, nor a whole host name in lower case"
        raise CannotStart(f"--for {use}: {remedy}; write one, such as api.example.org")
    return credentials_folder(namespace, use)


def _message(error: Exception, settings: Settings) -> str:
    if isinstance(error, OSError) and error.errno == errno.EROFS:  # the unit's ProtectSystem=strict
        remedy = "run `sudo paddock secret` on the host, or add ReadWritePaths= to its unit (systemctl edit paddock)"
        return f"{settings.secrets_dir}: the daemon may not write there; {remedy}"
    if isinstance(error, PermissionError):
        return f"{error.filename or settings.secrets_dir}: only root may do this; run it with sudo, on the host itself"
    return str(error)
