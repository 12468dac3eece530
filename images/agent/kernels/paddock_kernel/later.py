"""Modules that are loaded at their first use: what asyncio and IPython import for calls that a context may never make.

OpenSSL alone takes 3 MiB of an idle context, and a tenth of its start.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import types
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any

_NAMES = ("ssl", "asyncio.sslproto", "hashlib", "bz2", "lzma")
_EXTENSIONS = ("_ssl", "_hashlib", "_bz2", "_lzma")
_LOCK = threading.Lock()  # of the stand-ins' places in sys.modules


class _Later(types.ModuleType):
    """Stands for a module in those that have imported it; its first use imports it, as a statement would."""

    def __getattr__(self, name: str) -> Any:
        self.leave()  # else the import would return this stand-in: `from hashlib import sha1` reads it at once
        return getattr(importlib.import_module(self.__name__), name)

    def leave(self) -> bool:
        """Leave the module's place in sys.modules, if this stand-in has it."""
        with _LOCK:
            if sys.modules.get(self.__name__) is not self:
                return False
            del sys.modules[self.__name__]
            return True


@contextlib.contextmanager
def loaded_later() -> Iterator[None]:
    """Give what is imported meanwhile stand-ins of some modules. Code imports the modules themselves afterwards."""
    if any(PathFinder.find_spec(extension) is None for extension in _EXTENSIONS):
        yield  # who imports them has to see what this Python lacks
        return
    stand_ins = {name: _Later(name) for name in _NAMES if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if stand_in.leave():
                package, _, child = name.rpartition(".")
                if package in sys.modules:
                    setattr(sys.modules[package], child, stand_in)
