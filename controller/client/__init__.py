"""Python client of the daemon, for programs and for the command line. It imports no other package but archive.

    from controller.client import Paddock

    with Paddock() as paddock:
        done = paddock.sandbox("quickstart").exec(["python3", "-c", "print(6 * 7)"])
        assert (done.exit_code, done.stdout) == (0, b"42\\n")

Names are loaded on first use: the command line has to start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.client.detached import DetachedExec
    from controller.client.errors import ClientError, Refused, TimedOut, TimeIsOver, Unreachable
    from controller.client.exec import Completed, Output, Running
    from controller.client.files import FileInfo, Files
    from controller.client.paddock import Paddock
    from controller.client.port_forward import Forwarding, PortConnection
    from controller.client.sandbox import Sandbox

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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
