"""`paddock secret`: the operator's secrets on this host. It needs no daemon."""

import re
from dataclasses import dataclass

from controller.app.errors import CannotStart
from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.runtime.credential import credentials_folder, folder_parts
from controller.kinds.runtime.secret import NoSecret, providers_folder
from controller.settings import Settings

_HOST = re.compile(r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Listed:
    """A secret without its value. `changed_at` is Unix seconds. `use`: providers, sandboxes, or a host's name."""

    namespace: str
    use: str
    name: str
    changed_at: float


def set_secret(settings: Settings, namespace: str, name: str, value: bytes, use: str) -> bool:
    """Write a secret; return True if it is new. Raises CannotStart."""
    try:
        return SecretFolder(settings.secrets_dir).write(_folder(namespace, use), name, value)
    except (NoSecret, OSError) as error:
        raise CannotStart(_words(error, settings)) from error


def delete_secret(settings: Settings, namespace: str, name: str, use: str) -> None:
    """Delete a secret. Raises CannotStart."""
    try:
        SecretFolder(settings.secrets_dir).remove(_folder(namespace, use), name)
    except (NoSecret, OSError) as error:
        raise CannotStart(_words(error, settings)) from error


def list_secrets(settings: Settings, namespace: str | None) -> list[Listed]:
    """Return the secrets of a namespace (None: of all), without their values. Raises CannotStart."""
    folder = SecretFolder(settings.secrets_dir)
    try:
        found = [Listed(*_use(each), *one) for each in folder.namespaces() for one in folder.names(each)]
    except OSError as error:
        raise CannotStart(_words(error, settings)) from error
    return [each for each in found if namespace in (None, each.namespace)]


def _folder(namespace: str, use: str) -> str:
    if use in ("providers", "sandboxes"):
        return providers_folder(namespace) if use == "providers" else namespace
    if not _HOST.fullmatch(use):
        words = "it is none of `providers` and `sandboxes`, nor a whole host name in lower case"
        raise CannotStart(f"--for {use}: {words}; write one, such as api.example.org")
    return credentials_folder(namespace, use)


def _use(folder: str) -> tuple[str, str]:
    """Return the namespace and the use of a folder's secrets."""
    namespace, host = folder_parts(folder)
    if host:
        return namespace, host
    end = providers_folder("")
    return folder.removesuffix(end), "providers" if folder.endswith(end) else "sandboxes"


def _words(error: Exception, settings: Settings) -> str:
    if isinstance(error, PermissionError):
        return f"{error.filename or settings.secrets_dir}: only root may do this; run it with sudo, on the host itself"
    return str(error)
