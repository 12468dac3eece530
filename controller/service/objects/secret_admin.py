"""List secrets with what uses them, and set one. Only admins of all namespaces may; values are never returned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.kinds.access.access import AccessRequest
from controller.kinds.envelope import namespace_fault
from controller.kinds.meta import StoredObject
from controller.kinds.provider import KIND as PROVIDER
from controller.kinds.registry import Registry
from controller.kinds.runtime.secret import ListedSecret, NoSecret
from controller.ports import SecretFiles
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.objects.objects import Objects

_PROVIDERS, _SANDBOXES = "providers", "sandboxes"
_NONE = "this daemon serves no secrets; set them on the host with `sudo paddock secret set`"


@dataclass(frozen=True, slots=True)
class SecretUser:
    """An object that names a secret."""

    kind: str
    """Kind of the object."""
    name: str
    """Its name, in the secret's namespace."""


@dataclass(frozen=True, slots=True)
class UsedSecret:
    """A secret, and the objects that name it."""

    namespace: str
    """Its namespace."""
    use: str
    """providers, sandboxes, or a host's name."""
    name: str
    """Its name."""
    changed_at: float | None
    """Time of its last change, Unix seconds; None: it is named, and not set."""
    hosts: tuple[str, ...]
    """Hosts (host:port) that a provider's key may be sent to."""
    users: tuple[SecretUser, ...]
    """Objects that name it."""


class NoSecretFiles:
    """ports.SecretFiles of a daemon without any."""

    def all(self) -> Sequence[ListedSecret]:
        return ()

    def write(self, namespace: str, name: str, value: bytes, use: str, hosts: Sequence[str]) -> bool:  # noqa: ARG002
        raise NoSecret(f"secret {name}: {_NONE}")


class SecretAdmin:
    """The use-cases."""

    def __init__(self, files: SecretFiles, objects: Objects, registry: Registry, recorder: Recorder) -> None:
        self._files, self._objects, self._registry, self._recorder = files, objects, registry, recorder

    def list(self) -> Sequence[UsedSecret]:
        """Return all secrets of this host, and those that are named and not set. Raises ServiceUnavailable."""
        access.require(AccessRequest("admin", sub="secrets"), self._registry)
        users = self._users()
        try:
            listed = {(secret.namespace, secret.use, secret.name): secret for secret in self._files.all()}
        except NoSecret as error:
            raise errors.ServiceUnavailable(str(error)) from error
        for key in [key for key in users if key[1] == _PROVIDERS and key not in listed]:
            of_sandboxes = (key[0], _SANDBOXES, key[2])  # a provider may have a key that sandboxes can read
            if of_sandboxes in listed:
                users.setdefault(of_sandboxes, {}).update(users.pop(key))
        return [
            UsedSecret(
                *key,
                changed_at=listed[key].changed_at if key in listed else None,
                hosts=listed[key].hosts if key in listed else (),
                users=tuple(users.get(key, ())),
            )
            for key in sorted({*listed, *users})
        ]

    def write(self, namespace: str, name: str, value: bytes, use: str, hosts: Sequence[str]) -> bool:
        """Set a secret; return True if it is new. Raises BadRequest."""
        access.require(AccessRequest("admin", name=name, sub="secrets"), self._registry)
        if why := namespace_fault(namespace):
            raise errors.BadRequest(why)
        ask = AccessRequest("admin", namespace=namespace, name=name, sub="secrets")
        self._recorder.record_use(ask, {"for": use, **({"hosts": list(hosts)} if hosts else {})})
        try:
            return self._files.write(namespace, name, value, use, hosts)
        except NoSecret as error:
            raise errors.BadRequest(str(error)) from error

    def _users(self) -> dict[tuple[str, str, str], dict[SecretUser, None]]:
        """Return what names each secret, by its namespace, use and name."""
        users: dict[tuple[str, str, str], dict[SecretUser, None]] = {}
        for kind in self._registry:
            if kind.read_only or not kind.namespaced:
                continue
            for obj in self._objects.list(kind, None).objects:
                for use, name in _references(obj):
                    users.setdefault((obj.namespace, use, name), {})[SecretUser(obj.kind, obj.name)] = None
        return users


def _references(obj: StoredObject) -> Iterator[tuple[str, str]]:
    """Yield the use and the name of each secret that a stored spec names."""
    yield from _references_in(obj.spec, _PROVIDERS if obj.kind == PROVIDER.name else _SANDBOXES)


def _references_in(value: Any, use: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        host = value.get("host")
        for field, child in value.items():
            if field == "secretRef":
                yield from _reference(child, host if isinstance(host, str) and host else use)
            elif field == "secrets" and isinstance(child, Sequence):
                for entry in child:
                    yield from _reference(entry, _SANDBOXES)
            else:
                yield from _references_in(child, use)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _references_in(child, use)


def _reference(reference: Any, use: str) -> Iterator[tuple[str, str]]:
    if isinstance(reference, Mapping) and isinstance(reference.get("name"), str):
        yield use, reference["name"]
