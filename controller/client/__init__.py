"""Former name of the client's modules: they are those of `paddock._client`.

    from controller.client import Paddock

    with Paddock() as paddock:
        done = paddock.sandbox("quickstart").exec(["python3", "-c", "print(6 * 7)"])
        assert (done.exit_code, done.stdout) == (0, b"42\\n")

It goes on to work. New programs `import paddock`, whose sandboxes do more (README.md of this folder).
Names are loaded on first use: the command line has to start quickly.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock._client.command import Secret
    from paddock._client.detached import DetachedExec
    from paddock._client.errors import ClientError, Refused, TimedOut, TimeIsOver, Unreachable
    from paddock._client.exec import Completed, Output, Running
    from paddock._client.files import FileInfo, Files
    from paddock._client.paddock import Paddock
    from paddock._client.port_forward import Forwarding, PortConnection
    from paddock._client.sandbox import Sandbox

_HOME = "paddock._client"
_MODULES = {
    "FileInfo": "files",
    "Files": "files",
    "Forwarding": "port_forward",
    "PortConnection": "port_forward",
    "ClientError": "errors",
    "Completed": "exec",
    "DetachedExec": "detached",
    "Output": "exec",
    "Paddock": "paddock",
    "Refused": "errors",
    "Running": "exec",
    "Sandbox": "sandbox",
    "Secret": "command",
    "TimeIsOver": "errors",
    "TimedOut": "errors",
    "Unreachable": "errors",
}
__all__ = [
    "ClientError",
    "Completed",
    "DetachedExec",
    "FileInfo",
    "Files",
    "Forwarding",
    "Output",
    "Paddock",
    "PortConnection",
    "Refused",
    "Running",
    "Sandbox",
    "Secret",
    "TimeIsOver",
    "TimedOut",
    "Unreachable",
]


class _FormerNames(MetaPathFinder, Loader):
    """Finder that gives `controller.client.NAME` the very module `paddock._client.NAME`."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's spec; None for any other module."""
        package, _, module = name.rpartition(".")
        if package != __name__ or module not in _MODULE_NAMES:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its present name."""
        return importlib.import_module(f"{_HOME}.{spec.name.rpartition('.')[2]}")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it was executed under its present name."""


_MODULE_NAMES = frozenset(_MODULES.values()) | {
    "connection",
    "credentials",
    "handshake",
    "server",
    "splice",
    "transfer",
    "websocket",
}
sys.meta_path.append(_FormerNames())


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{_HOME}.{_MODULES[name]}"), name)
