"""Loading of what uses the official SDK: only the SDK's server, which is half of it.

Importing any part of the packages `mcp` and `mcp.server` imports all of the client, the high-level server and a
cryptography library: 11 MiB and a third of the time, of which nothing is used here.
"""

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_PACKAGES = ("mcp", "mcp.client", "mcp.server")
_LOCK = threading.Lock()


class _Package(ModuleType):
    """A package whose own code runs only once something of it is asked for; its modules are imported without."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's code, then return the attribute. Called for one that is not there yet."""
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def load(module: str) -> Any:
    """Return a module of ours that uses the SDK. The first time it takes a third of a second."""
    with _LOCK:
        for name in _PACKAGES:
            if name not in sys.modules:
                _put(name)
        return importlib.import_module(module)


def _put(name: str) -> None:
    parent, _, last = name.rpartition(".")
    if parent and not isinstance(sys.modules[parent], _Package):
        return
    spec = importlib.util.find_spec(name)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Package
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], last, module)
