"""Contexts: named daemons in `~/.config/paddock/config.toml`, one of them current.

    current = "work"

    [[contexts]]
    name = "work"
    server = "https://paddock.example.org:9465"
    namespace = "team-a"
    tokenFile = "~/.config/paddock/work.token"
    caFile = "/etc/ssl/paddock.pem"

Another file can be named by PADDOCK_CONFIG. Tokens are never in this file.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock._client.errors import ClientError

_FIELDS = {
    "name": "name",
    "server": "server",
    "namespace": "namespace",
    "tokenFile": "token_file",
    "caFile": "ca_file",
}
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Context:
    """A named daemon: its address, the namespace to work in, and files of a token and of trusted authorities."""

    name: str
    server: str = ""
    namespace: str = ""
    token_file: str = ""
    ca_file: str = ""

    def as_toml(self) -> str:
        """Return its table in the file."""
        lines = [
            f"{key} = {json.dumps(getattr(self, field), ensure_ascii=False)}"
            for key, field in _FIELDS.items()
            if getattr(self, field)
        ]
        return "\n".join(["[[contexts]]", *lines]) + "\n"


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user, and the name of the current one (empty: none)."""

    items: tuple[Context, ...] = ()
    current: str = ""

    def find(self, name: str) -> Context:
        """Return the context of that name. Raises ClientError."""
        context = next((context for context in self.items if context.name == name), None)
        if context is None:
            known_names = ", ".join(context.name for context in self.items) or "none"
            raise ClientError(f"context {name}: not found in {config_file()}; known contexts: {known_names}")
        return context

    def put(self, context: Context) -> "Contexts":
        """Return the contexts with this one added or replaced."""
        names = [context.name for context in self.items]
        if context.name in names:
            items = tuple(context if existing.name == context.name else existing for existing in self.items)
        else:
            items = (*self.items, context)
        return replace(self, items=items)

    def without(self, name: str) -> "Contexts":
        """Return the contexts without that one. Raises ClientError if it is missing."""
        self.find(name)
        return Contexts(
            tuple(context for context in self.items if context.name != name),
            "" if self.current == name else self.current,
        )

    def as_toml(self) -> str:
        """Return the text of the file."""
        head = f"current = {json.dumps(self.current, ensure_ascii=False)}\n" if self.current else ""
        return "\n".join(section for section in (head, *(context.as_toml() for context in self.items)) if section)


def config_file() -> Path:
    """Return the path of the file: PADDOCK_CONFIG, else below XDG_CONFIG_HOME or `~/.config`."""
    if configured := os.environ.get("PADDOCK_CONFIG"):
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME")
    if not base and not os.environ.get("HOME"):
        return Path("/nonexistent/paddock/config.toml")  # a service without a home has no contexts
    return (Path(base) if base else Path.home() / ".config") / "paddock" / "config.toml"


def load_contexts(file: Path | None = None) -> Contexts:
    """Read the file; a missing one holds no contexts. Raises ClientError that names every fault."""
    path = file or config_file()
    try:
        with path.open("rb") as opened:
            text = opened.read(_MAX_BYTES + 1).decode()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{path}: can't read the contexts ({error}); check the file") from error
    if len(text) > _MAX_BYTES:
        raise ClientError(f"{path}: larger than {_MAX_BYTES >> 20} MiB; check the file")
    import tomllib  # slow to import

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientError(f"{path}: not valid TOML: {error}; correct the file") from error
    return _parse(path, document)


def save_contexts(contexts: Contexts, file: Path | None = None) -> None:
    """Write the file atomically, readable by its owner only. Raises ClientError."""
    path = file or config_file()
    write_private(path, contexts.as_toml())


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only; create its folder. Raises ClientError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(fd, "w") as opened:
                opened.write(text)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ClientError(f"{path}: can't write ({error}); check the folder") from error


def chosen_context(name: str | None = None) -> Context | None:
    """Return the context of that name, else of PADDOCK_CONTEXT, else the current one; None if there is none."""
    chosen = name or os.environ.get("PADDOCK_CONTEXT")
    if not chosen and not config_file().exists():
        return None
    contexts = load_contexts()
    chosen = chosen or contexts.current
    return contexts.find(chosen) if chosen else None


def _parse(path: Path, document: Mapping[str, Any]) -> Contexts:
    faults = [f"unknown field `{field_name}`" for field_name in document if field_name not in ("current", "contexts")]
    current, tables = document.get("current", ""), document.get("contexts", [])
    if not isinstance(current, str):
        faults.append("`current` must be a string")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        faults.append("`contexts` must be tables, written as [[contexts]]")
        tables = []
    items = []
    for at, table in enumerate(tables, start=1):
        place = f"context {table.get('name') or at}"
        faults += [f"{place}: unknown field `{field_name}`" for field_name in table if field_name not in _FIELDS]
        faults += [
            f"{place}: `{key}` must be a string" for key in _FIELDS if key in table and not isinstance(table[key], str)
        ]
        if not table.get("name"):
            faults.append(f"{place}: `name` is missing")
        items.append(Context(**{field: str(table.get(key, "")) for key, field in _FIELDS.items()}))
    names = [context.name for context in items]
    faults += [
        f"context {duplicate}: defined twice" for duplicate in sorted({name for name in names if names.count(name) > 1})
    ]
    if isinstance(current, str) and current and current not in names:
        faults.append(f"the current context {current} is not defined")
    if faults:
        raise ClientError(f"{path}: {'; '.join(faults)}; correct the file")
    return Contexts(tuple(items), current)
