"""`paddock secret`: the operator's secrets on this host. It needs no daemon."""

from dataclasses import dataclass
from typing import Literal

from controller.app.errors import CannotStart
from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.runtime.secret import NoSecret, providers_folder
from controller.settings import Settings

Use = Literal["providers", "sandboxes"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A secret without its value. `changed_at` is Unix seconds."""

    namespace: str
    name: str
    use: Use
    changed_at: float


def set_secret(settings: Settings, namespace: str, name: str, value: bytes, use: Use) -> bool:
    """Write a secret; return True if it is new. Raises CannotStart."""
    try:
        return SecretFolder(settings.secrets_dir).write(_folder(namespace, use), name, value)
    except (NoSecret, OSError) as error:
        raise CannotStart(_words(error, settings)) from error


def delete_secret(settings: Settings, namespace: str, name: str, use: Use) -> None:
    """Delete a secret. Raises CannotStart."""
    try:
        SecretFolder(settings.secrets_dir).remove(_folder(namespace, use), name)
    except (NoSecret, OSError) as error:
        raise CannotStart(_words(error, settings)) from error


def list_secrets(settings: Settings, namespace: str | None) -> list[Listed]:
    """Return the secrets of a namespace (None: of all), without their values. Raises CannotStart."""
    folder, end = SecretFolder(settings.secrets_dir), providers_folder("")
    try:
        found = [
            Listed(each.removesuffix(end), name, "providers" if each.endswith(end) else "sandboxes", at)
            for each in folder.namespaces()
            for name, at in folder.names(each)
        ]
    except OSError as error:
        raise CannotStart(_words(error, settings)) from error
    return [each for each in found if namespace in (None, each.namespace)]


def _folder(namespace: str, use: Use) -> str:
    return providers_folder(namespace) if use == "providers" else namespace


def _words(error: Exception, settings: Settings) -> str:
    if isinstance(error, PermissionError):
        return f"{error.filename or settings.secrets_dir}: only root may do this; run it with sudo, on the host itself"
    return str(error)
